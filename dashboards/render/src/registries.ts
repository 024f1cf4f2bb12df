// What Grafana's application fills in at start, and its libraries expect to find: registries and services.
import {
  createTheme, dataLinksOverrideProcessor, displayNameOverrideProcessor, EventBusSrv, identityOverrideProcessor,
  numberOverrideProcessor, standardEditorsRegistry, standardFieldConfigEditorRegistry, standardTransformers,
  standardTransformersRegistry, thresholdsOverrideProcessor, unitOverrideProcessor, valueMappingsOverrideProcessor,
} from '@grafana/data';
import * as runtime from '@grafana/runtime';
import { sceneGraph } from '@grafana/scenes';

const PROCESSORS: Record<string, unknown> = {
  color: identityOverrideProcessor,
  decimals: numberOverrideProcessor,
  displayName: displayNameOverrideProcessor,
  fieldMinMax: identityOverrideProcessor,
  links: dataLinksOverrideProcessor,
  mappings: valueMappingsOverrideProcessor,
  max: numberOverrideProcessor,
  min: numberOverrideProcessor,
  noValue: identityOverrideProcessor,
  thresholds: thresholdsOverrideProcessor,
  unit: unitOverrideProcessor,
};

export const theme = createTheme({ colors: { mode: 'dark' } });

export function fillRegistries(): void {
  const nothing = () => null;
  const properties = Object.entries(PROCESSORS).map(([id, process]) => ({
    id, path: id, name: id, description: '', editor: nothing, override: nothing, process, shouldApply: () => true, settings: {},
  }));
  standardFieldConfigEditorRegistry.setInit(() => properties as never);
  standardEditorsRegistry.setInit(() => []);
  // Some are exported under two names, and a registry takes each id once.
  const transformers = new Map(Object.values(standardTransformers).map((t) => [t.id, t]));
  standardTransformersRegistry.setInit(
    () => [...transformers.values()].map((t) => ({ id: t.id, name: t.name, transformation: t, editor: nothing })) as never,
  );
}

/** `context()` is the scene whose variables are filled into text. */
export function fillServices(context: () => any): void {
  runtime.setEchoSrv({ addEvent() {}, addBackend() {}, flush() {} } as never);
  runtime.setAppEvents(new EventBusSrv());
  runtime.setBackendSrv({ get: async () => ({}), fetch: () => { throw new Error('no back end here'); } } as never);
  runtime.setTemplateSrv({
    getVariables: () => [],
    containsTemplate: (text: string) => /\$\w|\$\{/.test(text ?? ''),
    updateTimeRange() {},
    replace: (text: string, scoped: never, format: never) => (context() ? sceneGraph.interpolate(context(), text, scoped, format) : text),
  } as never);
  Object.assign(runtime.config, {
    theme2: theme,
    theme: theme.v1,
    bootData: { user: { timezone: 'utc', weekStart: 'monday', orgId: 1, theme: 'dark' }, settings: {}, navTree: [] },
  });
}
