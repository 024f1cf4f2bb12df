// The panel types: thin shells around the visualisations of @grafana/ui. Types that would need stand-ins of our
// own are left out, so that every picture is drawn by Grafana's code.
import {
  cacheFieldDisplayNames, FieldColorModeId, getDisplayProcessor, getDisplayValueAlignmentFactors, getFieldDisplayValues, identityOverrideProcessor,
  PanelPlugin, PluginType, renderMarkdown, VizOrientation,
} from '@grafana/data';
import * as runtime from '@grafana/runtime';
import { sceneUtils } from '@grafana/scenes';
import { BarGaugeDisplayMode, TooltipDisplayMode } from '@grafana/schema';
import * as ui from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { useMemo } from 'react';
import { theme } from './registries';

const rows = (p: any) => p.data.series.reduce((n: number, f: any) => n + f.length, 0);

// Grafana shows the words of the panel where it has some, else its own.
const Empty = (p: any) => (
  <div className="empty-panel" style={{ alignItems: 'center', color: theme.colors.text.secondary, display: 'flex', height: p.height, justifyContent: 'center', padding: 12, textAlign: 'center' }}>
    {p.fieldConfig.defaults.noValue ?? 'No data'}
  </div>
);

function TimeSeriesPanel(p: any) {
  if (!rows(p)) { return <Empty {...p} />; }
  return (
    <ui.TimeSeries frames={p.data.series} structureRev={p.data.structureRev} timeRange={p.timeRange} timeZone={p.timeZone} width={p.width} height={p.height} legend={p.options.legend} options={p.options} replaceVariables={p.replaceVariables}>
      {(config: any) => <ui.TooltipPlugin config={config} data={p.data.series[0]} mode={TooltipDisplayMode.Multi} timeZone={p.timeZone} />}
    </ui.TimeSeries>
  );
}

function useValues(p: any) {
  return useMemo(
    () => getFieldDisplayValues({ data: p.data.series, fieldConfig: p.fieldConfig, reduceOptions: p.options.reduceOptions, replaceVariables: p.replaceVariables, theme, timeZone: p.timeZone }),
    [p.data, p.fieldConfig, p.options],
  );
}

function StatPanel(p: any) {
  const values = useValues(p);
  const draw = ({ value, width, height }: any) => (
    <ui.BigValue value={value.display} count={values.length} colorMode={p.options.colorMode} graphMode={p.options.graphMode} justifyMode={p.options.justifyMode} textMode={p.options.textMode} wideLayout={p.options.wideLayout} width={width} height={height} theme={theme} />
  );
  return <ui.VizRepeater getValues={() => values} renderValue={draw} renderCounter={p.renderCounter} source={p.data} width={p.width} height={p.height} itemSpacing={3} autoGrid orientation={VizOrientation.Auto} />;
}

function BarGaugePanel(p: any) {
  const values = useValues(p);
  if (!rows(p)) { return <Empty {...p} />; }
  const draw = ({ value, width, height, alignmentFactors }: any) => {
    const field = value.view?.dataFrame.fields[value.colIndex];
    return (
      <ui.BarGauge value={value.display} field={value.field} display={field && getDisplayProcessor({ field, theme })} alignmentFactors={alignmentFactors} text={p.options.text} width={width} height={height} orientation={VizOrientation.Horizontal} theme={theme} itemSpacing={8} lcdCellWidth={8} displayMode={p.options.displayMode ?? BarGaugeDisplayMode.Basic} showUnfilled={p.options.showUnfilled} valueDisplayMode={p.options.valueMode} namePlacement={p.options.namePlacement} />
    );
  };
  return <ui.VizRepeater getValues={() => values} renderValue={draw} renderCounter={p.renderCounter} getAlignmentFactors={(v: any) => getDisplayValueAlignmentFactors(v)} source={p.data} width={p.width} height={p.height} minVizHeight={p.options.minVizHeight} minVizWidth={p.options.minVizWidth} itemSpacing={8} orientation={VizOrientation.Horizontal} />;
}

function TablePanel(p: any) {
  useMemo(() => cacheFieldDisplayNames(p.data.series), [p.data.series]); // headings are read from this cache alone
  if (!rows(p)) { return <Empty {...p} />; }
  return <TableNG data={p.data.series[0]} width={p.width} height={p.height} structureRev={p.data.structureRev} initialSortBy={p.options.sortBy} cellHeight={p.options.cellHeight} getActions={() => []} {...({} as any)} />;
}

const TextPanel = (p: any) => <div className="markdown-html" style={{ height: p.height, overflow: 'auto', padding: 8 }} dangerouslySetInnerHTML={{ __html: renderMarkdown(p.options.content) }} />;

// Defaults of the settings that a panel type adds to its fields.
const LINES = {
  axisBorderShow: false, axisCenteredZero: false, axisColorMode: 'text', axisGridShow: true, axisLabel: undefined, axisPlacement: 'auto', axisSoftMax: undefined,
  axisSoftMin: undefined, barAlignment: 0, drawStyle: 'line', fillOpacity: 0, gradientMode: 'none', hideFrom: { legend: false, tooltip: false, viz: false },
  lineInterpolation: 'linear', lineStyle: { fill: 'solid' }, lineWidth: 1, pointSize: 5, scaleDistribution: { type: 'linear' }, showPoints: 'auto', spanNulls: false,
  stacking: { group: 'A', mode: 'none' }, thresholdsStyle: { mode: 'off' },
};
const CELLS = { align: 'auto', cellOptions: { type: 'auto' }, filterable: false, hidden: false, inspect: false, minWidth: 50, width: undefined };

function plugin(id: string, component: any, color: string, custom?: Record<string, unknown>) {
  const made = new PanelPlugin(component);
  made.meta = { id, name: id, type: PluginType.panel, info: { logos: { small: '', large: '' } }, skipDataQuery: id === 'text' } as any;
  const useCustomConfig = custom && ((builder: any) => {
    for (const [path, defaultValue] of Object.entries(custom)) {
      builder.addCustomEditor({ id: path, path, name: path, defaultValue, editor: () => null, override: () => null, process: identityOverrideProcessor, shouldApply: () => true, settings: {} });
    }
  });
  made.useFieldConfig({ useCustomConfig, standardOptions: { color: { defaultValue: { mode: color } } } } as any);
  return made;
}

export const plugins: Record<string, PanelPlugin> = {
  bargauge: plugin('bargauge', BarGaugePanel, FieldColorModeId.Thresholds),
  stat: plugin('stat', StatPanel, FieldColorModeId.Thresholds),
  table: plugin('table', TablePanel, FieldColorModeId.Thresholds, CELLS),
  text: plugin('text', TextPanel, FieldColorModeId.Thresholds),
  timeseries: plugin('timeseries', TimeSeriesPanel, FieldColorModeId.PaletteClassic, LINES),
};

export function installPanels(): void {
  runtime.setPluginImportUtils({ importPanelPlugin: async (id: string) => plugins[id], getPanelPluginFromCache: (id: string) => plugins[id] } as never);
  Object.entries(plugins).forEach(([pluginId, made]) => sceneUtils.registerRuntimePanelPlugin({ pluginId, plugin: made as any }));
}
