import pandas as pd, shutil
from pathlib import Path
old=Path('/work/main/report/recorded/nvidia-h200'); out=Path('/tmp/oldcards'); shutil.rmtree(out,ignore_errors=True)
m=pd.read_csv(old/'measurements.csv',dtype=str,keep_default_na=False); c=pd.read_csv(old/'cards.csv',dtype=str,keep_default_na=False)
keys=[k for k in c.columns[:c.columns.get_loc('gpu_uuid')] if k not in('platform',)]
def put(name,rows):
    f=out/name/'nvidia-h200'; (f/'tasks').mkdir(parents=True); shutil.copy(old/'device.json',f)
    for t,part in rows.groupby('task'): part.to_csv(f/'tasks'/f'{t}.csv',index=False)
    print(name,len(rows))
own=m.merge(c[keys].drop_duplicates(),on=keys)
put('record',own[m.columns])
for i,(u,part) in enumerate(c.groupby('gpu_uuid')):
    rows=part.drop(columns=['sustained_vs_best']).assign(sustained_vs_best=part['sustained_vs_best'],status='ok')
    put(f'card{i}',rows.reindex(columns=m.columns).fillna(''))
