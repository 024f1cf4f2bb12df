// Bundles the page: node build.mjs
import * as esbuild from 'esbuild';

// Services are set in one copy of a library and read in another unless each exists once, as an ES module.
const ONCE = /^(@grafana\/(data|ui|runtime|schema|i18n|e2e-selectors|scenes)|react|react-dom|rxjs)($|\/)/;
const here = process.cwd();
const once = {
  name: 'once',
  setup(build) {
    build.onResolve({ filter: ONCE }, (asked) => {
      if (asked.pluginData === 'once' || asked.resolveDir === here) {
        return undefined;
      }
      return build.resolve(asked.path, { kind: 'import-statement', pluginData: 'once', resolveDir: here });
    });
  },
};

await esbuild.build({
  alias: { 'react-router-dom-v5-compat': 'react-router-dom' },
  bundle: true,
  define: { global: 'window', 'process.env': '{}', 'process.env.NODE_ENV': '"production"' },
  entryPoints: ['src/main.tsx'],
  format: 'iife',
  jsx: 'automatic',
  loader: { '.svg': 'dataurl', '.ttf': 'dataurl', '.woff2': 'dataurl' },
  logLevel: 'error',
  mainFields: ['browser', 'module', 'main'],
  minify: true,
  outfile: 'dist/app.js',
  platform: 'browser',
  plugins: [once],
  target: 'es2022',
});
