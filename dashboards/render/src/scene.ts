// A dashboard's JSON as a scene of Grafana's libraries: variables, rows, panels with their queries and transformations.
import * as S from '@grafana/scenes';

const place = ({ x, y, w, h }: any) => ({ x, y, width: w, height: h });

function variable(v: any): any {
  const { name, label, hide } = v;
  const common = { name, label, hide, value: v.current?.value, text: v.current?.text };
  const choice = { isMulti: v.multi, includeAll: v.includeAll, allValue: v.allValue };
  switch (v.type) {
    case 'datasource': return new S.DataSourceVariable({ name, label, hide, pluginId: v.query });
    case 'query': return new S.QueryVariable({ ...common, ...choice, datasource: v.datasource, query: v.query, regex: v.regex, sort: v.sort, refresh: v.refresh });
    case 'custom': return new S.CustomVariable({ ...common, ...choice, query: v.query });
    case 'interval': return new S.IntervalVariable({ name, label, hide, intervals: v.query.split(','), value: v.current.value });
    default: throw new Error(`a variable of type ${v.type}`);
  }
}

function panel(p: any): any {
  const queries = p.targets?.length ? new S.SceneQueryRunner({ datasource: p.datasource, queries: p.targets }) : undefined;
  const $data = queries && p.transformations?.length ? new S.SceneDataTransformer({ $data: queries, transformations: p.transformations }) : queries;
  const body = new S.VizPanel({ key: `panel-${p.id}`, title: p.title, description: p.description, pluginId: p.type, options: p.options, fieldConfig: p.fieldConfig ?? { defaults: {}, overrides: [] }, $data });
  return new S.SceneGridItem({ ...place(p.gridPos), body });
}

export function scene(board: any, from: string, to: string): any {
  const children: any[] = [];
  for (const p of board.panels) {
    if (p.type === 'row') {
      children.push(new S.SceneGridRow({ ...place(p.gridPos), title: p.title, isCollapsed: false, children: [] }));
    } else {
      const row = children.at(-1);
      row.setState({ children: [...row.state.children, panel(p)] });
    }
  }
  return new S.EmbeddedScene({
    $timeRange: new S.SceneTimeRange({ from, to, timeZone: 'utc' }),
    $variables: new S.SceneVariableSet({ variables: board.templating.list.map(variable) }),
    controls: [new S.VariableValueSelectors({}), new S.SceneControlsSpacer(), new S.SceneTimePicker({ isOnCanvas: true })],
    body: new S.SceneGridLayout({ children, isDraggable: false, isResizable: false }),
  });
}

/** What became of each panel. */
export function states(root: any): object[] {
  return S.sceneGraph.findAllObjects(root, (o: any) => o instanceof S.VizPanel).map((o: any) => {
    const data = S.sceneGraph.getData(o).state.data;
    const fields = (data?.series ?? []).flatMap((f: any) => f.fields);
    return {
      title: o.state.title,
      type: o.state.pluginId,
      state: o.state.$data ? data?.state ?? 'NotStarted' : 'Done',
      frames: data?.series?.length ?? 0,
      points: (data?.series ?? []).reduce((n: number, f: any) => n + f.length, 0),
      fields: [...new Set(fields.map((f: any) => f.config?.displayName ?? f.name))],
      error: data?.errors?.[0]?.message ?? o.state._pluginLoadError ?? '',
    };
  });
}
