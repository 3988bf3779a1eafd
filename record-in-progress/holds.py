import sys,re
import importlib; R=importlib.import_module("tilewise.report.render"); from tilewise.report import tables
from tilewise import RECORDED
from kernelscope.yaml_input import read_yaml
from tilewise.study.expressions import evaluate
evaluate=R.evaluate
from tilewise.report.render import _evidence_of
from tilewise.explain.quantities import Choice, Machine, Spread, Untestable, fitting
for article in (R.STORY, R.ASSIGNMENT):
    place=article.with_suffix('.yaml'); listed=read_yaml(place); found={}
    for run,ex in listed['runs'].items():
        own=_evidence_of(RECORDED/run)
        def row(name,column,own=own,**where):
            known=fitting(tables.frame(name,own),where)[column].dropna()
            if known.empty: raise Untestable(f'no {column} in {name}: {where}')
            return known.iloc[-1]
        fn=Machine(own,own.gpus[0]).functions()|{'row':row}
        for name,e in ex.items():
            try: v=evaluate(e,fn|found)
            except Exception as m: print('MISSING',run,name,str(m)[:150]); v=float('nan')
            v=v.words if isinstance(v,Choice) else v
            found[name]=v.value if isinstance(v,Spread) else v
    print('==',article.name)
    for c in listed['holds']:
        try: ok=evaluate(c,found)
        except Exception as m: ok=f'error {m}'
        if isinstance(ok,str) or not ok:
            n=[x for x in dict.fromkeys(re.findall(r'\w+',c)) if x in found]
            print('FALSE',c,{x:(found[x] if isinstance(found[x],str) else round(float(found[x]),4)) for x in n})
    if len(sys.argv)>1: print({k:(v if isinstance(v,str) else round(float(v),4)) for k,v in found.items()})
