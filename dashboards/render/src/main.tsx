import { ThemeContext } from '@grafana/data';
import { GlobalStyles, PortalContainer } from '@grafana/ui';
import { createRoot } from 'react-dom/client';
import { BrowserRouter } from 'react-router-dom';
import { installPanels } from './panels';
import { installDatasource, journal } from './prometheus';
import { fillRegistries, fillServices, theme } from './registries';
import { scene, states } from './scene';

const page = window as any;
let root: any = null;

async function show(): Promise<void> {
  const asked = new URLSearchParams(location.search);
  const board = await (await fetch(`/dashboards/${asked.get('uid')}.json`)).json();
  // Choices made in the address, as Grafana takes them: var-NAME=VALUE.
  for (const v of board.templating.list) {
    const given = asked.get(`var-${v.name}`);
    if (given) { v.current = { text: v.multi ? [given] : given, value: v.multi ? [given] : given }; }
  }
  root = scene(board, asked.get('from')!, asked.get('to')!);
  const canvas = { background: theme.colors.background.canvas, display: 'flex', flexDirection: 'column' as const, minHeight: '100vh', padding: 16 };
  createRoot(document.getElementById('root')!).render(
    <BrowserRouter>
      <ThemeContext.Provider value={theme}>
        <GlobalStyles />
        <PortalContainer />
        <div style={canvas}>
          <h3 style={{ color: theme.colors.text.primary, margin: '0 0 12px' }}>{board.title}</h3>
          <root.Component model={root} />
        </div>
      </ThemeContext.Provider>
    </BrowserRouter>,
  );
}

page.report = () => ({ panels: root ? states(root) : [], ...journal });
fillRegistries();
fillServices(() => root);
installDatasource();
installPanels();
show().catch((e) => journal.errors.push(String(e.stack)));
