// Derives a JSON schema from Grafana's published types of a dashboard, and holds dashboards against it:
// node schema.mjs FILE... prints {"bytes": SIZE, "faults": {FILE: [...]}, "refuses": [...]}
import fs from 'node:fs';
import Ajv from 'ajv';
import { createGenerator } from 'ts-json-schema-generator';

const TYPES = 'node_modules/@grafana/schema/dist/types/raw/dashboard/x/types.gen.d.ts';
const generator = createGenerator({ path: TYPES, type: 'Dashboard', skipTypeCheck: true, tsconfig: 'tsconfig.json' });
const schema = generator.createSchema('Dashboard');
const fits = new Ajv({ allErrors: true, strict: false }).compile(schema);
const faults = (board) => (fits(board) ? [] : fits.errors.map((e) => `${e.instancePath} ${e.message} ${JSON.stringify(e.params)}`));
const read = (name) => JSON.parse(fs.readFileSync(name, 'utf8'));
const files = process.argv.slice(2);

// The schema is only worth something if it refuses what is wrong.
const graph = (b) => b.panels.find((p) => p.type === 'timeseries');
const BROKEN = {
  'a key that does not exist': (b) => { b.panles = []; },
  'a width in words': (b) => { graph(b).gridPos.w = 'wide'; },
  'a threshold mode that does not exist': (b) => { graph(b).fieldConfig.defaults.thresholds.mode = 'absolut'; },
  'a panel key that does not exist': (b) => { graph(b).target = []; },
};
const refuses = Object.entries(BROKEN).filter(([, spoil]) => {
  const board = read(files[0]);
  spoil(board);
  return faults(board).length > 0;
}).map(([name]) => name);

process.stdout.write(JSON.stringify({
  bytes: JSON.stringify(schema).length,
  faults: Object.fromEntries(files.map((name) => [name, faults(read(name))])),
  refuses,
  broken: Object.keys(BROKEN),
}));
