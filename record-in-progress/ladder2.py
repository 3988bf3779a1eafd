# ladder2.py OLD NEW DOC: the tables of docs/ladder.md, cell by cell, from OLD/measurements.csv to NEW/measurements.csv
import pandas as pd, re, sys
O,N,DOC=sys.argv[1]+'/measurements.csv',sys.argv[2]+'/measurements.csv',sys.argv[3]
o,n=(pd.read_csv(p) for p in (O,N))
print([c for c in n.columns if 'sust' in c or 'gflops' in c])
key=['task','kernel','dtype','n','m','p']
TASKS={'Float, on':('ladder_float','float'),'Double':('ladder_double','double'),'bfloat16:':('ladder_short','bfloat16'),'half:':('ladder_short','half'),'TF32;':('ladder_short','tf32'),'Float results':('float_accuracy','float'),'Double results':('ladder_int8','int8')}
def shape(h):
    h=h.strip()
    if h.endswith('³'): v=int(h[:-1]); return v,v,v
    return tuple(map(int,h.strip('()').split(',')))
def cell(r):
    def num(x): return f'{x:.0f}' if x>=100 else f'{x:.1f}'
    vs=[r[c] for c in ('vs_default','vs_best') if pd.notna(r[c])]; sv=[r[c] for c in ('sustained_vs_default','sustained_vs_best') if pd.notna(r[c])]
    lib=str(r['kernel']).startswith('cublas')
    a=num(r['gflops']/1000)+('' if lib or not vs else f' ({min(vs):.2f})')
    if pd.notna(r['sustained_ms']):
        g=r['gflops']*r['time_ms']/r['sustained_ms']/1000
        a+='; '+num(g)+('' if lib or not sv else f' ({min(sv):.2f})')
    return a
def rows(d,t,k,dt,s,par):
    x=d[(d.task==t)&(d.kernel==k)&(d.dtype==dt)&(d.n==s[0])&(d.m==s[1])&(d.p==s[2])]
    if k=='three_tf32' and 'products 3' in par: x=x[x.products==3]
    if k=='three_tf32' and 'products 1' in par: x=x[x.products==1]
    return x
lines=open(DOC).read().split('\n'); cur=None; head=None; bad=0
for i,l in enumerate(lines):
    for k,v in TASKS.items():
        if l.startswith('## '+k) or l.startswith(k): cur=v
    if l.startswith('| rung'): head=[shape(c) for c in l.strip('|').split('|')[3:]]; continue
    if not l.startswith('|') or l.startswith('| ---'):
        if not l.startswith('|'): head=None
        continue
    if head is None or cur is None: continue
    c=[x.strip() for x in l[1:].rstrip('|').split('|')]; k=c[0].strip('`')
    if l.rstrip().endswith('|  |') : pass
    c=[x.strip() for x in l.split('|')[1:-1]]
    new=c[:3]
    for s,x in zip(head,c[3:]):
        a,b=(rows(d,*((cur[0],k,cur[1],s,c[2]))) for d in (o,n))
        if x=='':
            new.append(''); continue
        olds=[cell(r) for _,r in a.iterrows()]; news=[cell(r) for _,r in b.iterrows()]
        j=[q for q,y in enumerate(olds) if y==x or y.split(';')[0]==x]
        if len(j)!=1:
            bad+=1; print('??',k,s,x,olds,news); new.append(x); continue
        y=news[j[0]]
        if ';' not in x: y=y.split(';')[0]
        new.append(y)
    lines[i]='| '+' | '.join(new)+' |'
open(DOC,'w').write('\n'.join(lines)); print('bad',bad)
