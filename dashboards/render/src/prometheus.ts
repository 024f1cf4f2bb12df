// A data source that asks a real Prometheus: what Grafana's own does for the few features the dashboards use.
import { DataSourceApi, FieldType, LoadingState, rangeUtil, toDataFrame } from '@grafana/data';
import * as runtime from '@grafana/runtime';
import { catchError, from, map, of, startWith } from 'rxjs';

const SCRAPE_SECONDS = 15;

export const journal = { queries: [] as object[], variables: [] as object[], errors: [] as string[] };

type Labels = Record<string, string>;
type Result = { metric: Labels; value?: [number, string]; values?: Array<[number, string]> };

async function ask(path: string, parameters: Record<string, string | number> = {}): Promise<any> {
  const body = new URLSearchParams(Object.entries(parameters).map(([k, v]) => [k, String(v)]));
  const answer = await (await fetch(`/prometheus/api/v1/${path}`, { method: 'POST', body })).json();
  if (answer.status !== 'success') { throw new Error(answer.error); }
  return answer.data;
}

// Values that were chosen, as a regular expression; Prometheus' strings need their backslashes doubled.
const escaped = (value: string) => value.replace(/[\\^$.*+?()[\]{}|]/g, '\\\\$&');
const asMatcher = (value: unknown) => (Array.isArray(value) ? `(${value.map((v) => escaped(String(v))).join('|')})` : String(value));

function named(labels: Labels, legend: string): string {
  return legend.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? '').trim();
}

function tableFrame(refId: string, valueName: string, results: Result[]) {
  const labels = [...new Set(results.flatMap((r) => Object.keys(r.metric)))].sort();
  const last = (r: Result) => r.value ?? r.values!.at(-1)!;
  return toDataFrame({
    refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: results.map((r) => last(r)[0] * 1000) },
      ...labels.map((name) => ({ name, type: FieldType.string, values: results.map((r) => r.metric[name] ?? '') })),
      { name: valueName, type: FieldType.number, values: results.map((r) => Number(last(r)[1])) },
    ],
  });
}

/** One series on the whole grid of steps, with nulls where it has no value, as Grafana's back end answers. */
function seriesFrame(refId: string, legend: string, result: Result, grid: number[] | null, step: number) {
  const found = new Map((result.values ?? [result.value!]).map(([at, value]) => [at, Number(value)]));
  const times = grid ?? [...found.keys()];
  const name = legend ? named(result.metric, legend) : JSON.stringify(result.metric);
  return toDataFrame({
    refId,
    name,
    fields: [
      { name: 'Time', type: FieldType.time, config: { interval: step * 1000 }, values: times.map((t) => t * 1000) },
      { name: 'Value', type: FieldType.number, labels: result.metric, config: { displayNameFromDS: name }, values: times.map((t) => found.get(t) ?? null) },
    ],
  });
}

class Prometheus extends DataSourceApi<any> {
  query(request: any): any {
    return from(this.all(request));
  }

  private async all(request: any) {
    const [start, end] = [request.range.from.valueOf() / 1000, request.range.to.valueOf() / 1000];
    const targets = request.targets.filter((t: any) => t.expr && !t.hide);
    const answers = targets.map(async (target: any) => {
      const step = Math.max(rangeUtil.intervalToSeconds(target.interval || `${SCRAPE_SECONDS}s`), Math.ceil(request.intervalMs / 1000));
      const seconds = { __interval: step, __rate_interval: Math.max(step + SCRAPE_SECONDS, 4 * SCRAPE_SECONDS), __range: Math.round(end - start) };
      const own = Object.fromEntries(Object.entries(seconds).map(([name, s]) => [name, { text: `${s}s`, value: `${s}s` }]));
      const expr = runtime.getTemplateSrv().replace(target.expr, { ...request.scopedVars, ...own }, asMatcher);
      const entry = { expr, series: -1, error: '' };
      journal.queries.push(entry);
      try {
        const aligned = (t: number) => Math.floor(t / step) * step;
        const parameters = target.instant ? { query: expr, time: end } : { query: expr, start: aligned(start), end: aligned(end), step };
        const { result } = (await ask(target.instant ? 'query' : 'query_range', parameters)) as { result: Result[] };
        entry.series = result.length;
        if (target.format === 'table') {
          return result.length ? [tableFrame(target.refId, targets.length > 1 ? `Value #${target.refId}` : 'Value', result)] : [];
        }
        const grid = target.instant ? null : Array.from({ length: Math.floor((aligned(end) - aligned(start)) / step) + 1 }, (_, n) => aligned(start) + n * step);
        return result.map((r) => seriesFrame(target.refId, target.legendFormat, r, grid, step));
      } catch (e) {
        entry.error = String(e);
        throw e;
      }
    });
    return { data: (await Promise.all(answers)).flat() };
  }

  async testDatasource() {
    return { status: 'success', message: '' };
  }

  async metricFindQuery(query: any, options: any) {
    const text = runtime.getTemplateSrv().replace(typeof query === 'string' ? query : query.query, options?.scopedVars ?? {}, asMatcher);
    const found = /^label_values\((.+), (\w+)\)$/.exec(text.trim());
    if (!found) { throw new Error(`not a variable query of the dashboards: ${text}`); }
    const answer = await (await fetch(`/prometheus/api/v1/label/${found[2]}/values?${new URLSearchParams({ 'match[]': found[1] })}`)).json();
    if (answer.status !== 'success') { throw new Error(answer.error); }
    journal.variables.push({ query: text, values: answer.data });
    return answer.data.map((value: string) => ({ text: value, value }));
  }
}

export function installDatasource(): void {
  const meta = { id: 'prometheus', name: 'Prometheus', type: 'datasource', metrics: true, info: { logos: { small: '', large: '' } } };
  const settings = { id: 1, uid: 'prometheus', name: 'Prometheus', type: 'prometheus', url: '', jsonData: {}, isDefault: true, access: 'proxy', readOnly: true, meta };
  const source = Object.assign(new Prometheus(settings as never), { meta });
  runtime.setDataSourceSrv({
    get: async () => source, getList: () => [settings], getInstanceSettings: () => settings, reload() {}, registerRuntimeDataSource() {},
  } as never);
  runtime.setRunRequest(((chosen: Prometheus, request: any) => {
    const base = { timeRange: request.range, request, annotations: [] };
    return from(chosen.query(request)).pipe(
      map((answer: any) => ({ ...base, state: LoadingState.Done, series: answer.data })),
      catchError((e) => {
        journal.errors.push(String(e));
        return of({ ...base, state: LoadingState.Error, series: [], errors: [{ message: String(e.message) }] });
      }),
      startWith({ ...base, state: LoadingState.Loading, series: [] }),
    );
  }) as never);
}
