package page

import (
	"errors"
	"flag"
	"image/png"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/test/browser"
	"github.com/deltabridge/deltabridge/test/freeport"
)

var update = flag.Bool("update", false, "write the images of the documentation")

var (
	desk  = browser.Look{Width: 1280, Height: 800}
	phone = browser.Look{Width: 375, Height: 740, Phone: true, Dark: true}
)

// audit is a script that returns what makes the page hard to use: elements that are wider than the page, controls
// without a label, ids that are used twice, headings that skip a level, text that is hard to read.
const audit = `(() => {
	const found = [];
	const visible = e => e.checkVisibility({visibilityProperty: true}) && !e.closest('.visually-hidden, .hidden, .skip');
	const name = e => e.nodeName + '.' + e.className + ' ' + e.textContent.trim().slice(0, 40);
	if (document.documentElement.scrollWidth > innerWidth) {
		const wide = [...document.body.querySelectorAll('*')].filter(e => visible(e) && !e.closest('nav') && e.getBoundingClientRect().right > innerWidth + 1);
		found.push('wider than the page: ' + wide.slice(-3).map(name));
	}
	const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
	for (const id of ids) if (ids.filter(other => other === id).length > 1) found.push('twice: #' + id);
	for (const e of document.querySelectorAll('input')) if (!e.labels.length) found.push('no label: ' + e.name);
	for (const e of document.querySelectorAll('button, a, summary')) if (visible(e) && !e.textContent.trim()) found.push('no text: ' + e.outerHTML);
	for (const e of document.querySelectorAll('[aria-labelledby]')) if (!document.getElementById(e.getAttribute('aria-labelledby'))) found.push('no label: ' + e.id);
	for (const e of document.querySelectorAll('svg:not([aria-hidden])')) found.push('an image without a text: ' + e.outerHTML);
	if (document.querySelectorAll('main').length !== 1 || !document.querySelector('nav[aria-label]') || document.querySelectorAll('h1').length !== 1) found.push('landmarks');
	let level = 1;
	for (const e of document.querySelectorAll('h1, h2, h3, h4')) {
		const next = Number(e.nodeName[1]);
		if (next > level + 1) found.push('heading skips a level: ' + name(e));
		level = next;
	}
	const rgba = text => (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
	const background = e => {
		for (; e; e = e.parentElement) {
			const c = rgba(getComputedStyle(e).backgroundColor);
			if (c.length < 4 || c[3] === 1) return c;
		}
		return [255, 255, 255];
	};
	const luminance = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
	for (const e of document.body.querySelectorAll('*')) {
		if (!visible(e) || e.closest('svg, :disabled') || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
		const [a, b] = [rgba(getComputedStyle(e).color), background(e)].map(luminance).sort((x, y) => y - x);
		if ((a + .05) / (b + .05) < 4.5) found.push('contrast ' + ((a + .05) / (b + .05)).toFixed(1) + ': ' + name(e));
	}
	return found;
})()`

// look opens a page in a browser, and waits until it is live.
func look(t *testing.T, b *browser.Browser, url string, l browser.Look) *browser.Tab {
	t.Helper()
	tab := b.Open(t, url, l)
	tab.Wait("document.body.classList.contains('live')")
	return tab
}

// check fails if the page is hard to use, or if the browser has reported something.
func check(t *testing.T, tab *browser.Tab) {
	t.Helper()
	for _, problem := range slices.Concat(browser.Eval[[]string](tab, audit), tab.Problems()) {
		t.Error(problem)
	}
}

// variable is a status that changes while the page is open.
type variable struct {
	status atomic.Pointer[control.Status]
}

func (v *variable) set(s control.Status)   { v.status.Store(&s) }
func (v *variable) Status() control.Status { return *v.status.Load() }

// Every state is shown in a browser, on a desk and on a phone, in light and dark.
func TestStatesInABrowser(t *testing.T) {
	b := browser.Start(t)
	for name, status := range states() {
		t.Run(name, func(t *testing.T) {
			tab := look(t, b, serve(t, newTestPage(t, func() control.Status { return status })), desk)
			if text := tab.Text("h1"); text != status.Verdict.Text {
				t.Errorf("the verdict is %q", text)
			}
			if title := browser.Eval[string](tab, "document.title"); !strings.HasPrefix(title, string(status.Verdict.Health)) {
				t.Errorf("the title is %q", title)
			}
			tab.Run("document.querySelectorAll('details').forEach(d => d.open = true)")
			check(t, tab)
			for _, l := range []browser.Look{{Width: 1280, Height: 800, Dark: true}, {Width: 800, Height: 900}, phone, {Width: 320, Height: 600, Phone: true}} {
				tab.Display(l)
				check(t, tab)
			}
			tab.Run("document.querySelectorAll('details').forEach(d => d.open = false)")
			if *update {
				tab.Display(desk)
				keep(t, filepath.Join("..", "..", "bin", "page", name+".png"), tab.Screenshot())
				tab.Display(phone)
				keep(t, filepath.Join("..", "..", "bin", "page", name+"-phone.png"), tab.Screenshot())
			}
		})
	}
}

func keep(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// An outage begins and ends while somebody looks. What is open stays open, what is being typed stays, and the state is
// announced once. Then the bridge goes away, and returns.
func TestAnOutageInABrowser(t *testing.T) {
	var now variable
	now.set(healthy())
	p := newTestPage(t, now.Status)
	mux := http.NewServeMux()
	p.Register(mux)
	found, err := freeport.Reserve(1)
	if err != nil {
		t.Fatal(err)
	}
	address := freeport.Address(found[0])
	end := serveAt(t, address, mux)
	tab := look(t, browser.Start(t), "http://"+address, desk)
	tab.Run(`document.querySelector('[data-key="sink warehouse"] details').open = true`)
	tab.Run(
		`window.announced = 0; new MutationObserver(() => announced++).observe(document.getElementById('announce'), {childList: true})`,
	)
	tab.Run(`document.querySelector('#tail-form input').focus()`)
	tab.Press("wareh")

	now.set(outage())
	// The last section that is checked.
	tab.Wait(`document.querySelector('.lane').innerText.includes('connection refused')`)
	for _, expression := range []string{
		`document.title.startsWith('waiting')`,
		`document.getElementById('icon').href.endsWith('/wait.svg')`,
		`document.querySelector('[data-key="sink warehouse"] details').open`,
		`document.querySelector('.lane').dataset.key === 'sink warehouse'`,
		`document.querySelector('#totals').innerText.includes('164m')`,
		`document.activeElement === document.querySelector('#tail-form input') && document.activeElement.value === 'wareh'`,
		`document.getElementById('announce').textContent.includes('nothing is lost') && announced === 1`,
		`document.querySelectorAll('.lane').length === 3 && document.querySelectorAll('.lane details[open]').length === 1`,
		`getComputedStyle(document.querySelector('.lane')).borderLeftColor !== getComputedStyle(document.body).color`,
		`document.querySelector('.lane .chip').textContent.trim() === 'waiting' && !!document.querySelector('.lane .chip svg')`,
	} {
		if !browser.Eval[bool](tab, expression) {
			t.Error(expression)
		}
	}
	tab.Press("ouse")
	check(t, tab)

	now.set(healthy())
	tab.Wait("document.title.startsWith('ok')")
	tab.Wait(`!document.querySelector('.lane .problem') && document.activeElement.value === 'warehouse'`)
	check(t, tab)

	p.Close()
	end()
	tab.Wait("document.body.classList.contains('stale') && document.title.startsWith('no connection')")
	tab.Problems() // failed requests
	q := newTestPage(t, outage)
	mux = http.NewServeMux()
	q.Register(mux)
	end = serveAt(t, address, mux)
	tab.Wait("document.body.classList.contains('live') && document.title.startsWith('waiting')")
	q.Close()
	end()
}

// serveAt serves a page at an address, which must be free again when end is called.
func serveAt(t *testing.T, address string, handler http.Handler) (end func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return func() {
		t.Helper()
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}
}

// Everything can be reached with the keyboard, and the focus is visible.
func TestKeyboard(t *testing.T) {
	tab := look(t, browser.Start(t), serve(t, newTestPage(t, large)), desk)
	tab.Press("\t")
	if !browser.Eval[bool](
		tab,
		"document.activeElement.className === 'skip' && document.activeElement.getBoundingClientRect().top >= 0",
	) {
		t.Error("the first stop is not the link to the content")
	}
	tab.Press("\r")
	tab.Press("\t")
	tab.Wait(`document.activeElement.matches('.lane summary')`)
	if !browser.Eval[bool](tab, `getComputedStyle(document.activeElement).outlineStyle === 'solid'`) {
		t.Error("the focus is not visible")
	}
	tab.Press("\r")
	tab.Wait(`document.activeElement.parentElement.open`)
	seen := map[string]bool{}
	for range 80 {
		tab.Press("\t")
		seen[browser.Eval[string](tab, `document.activeElement.closest('section')?.id || document.activeElement.nodeName`)] = true
		if seen["tail"] && seen["sources"] {
			break
		}
	}
	for _, want := range []string{"flow", "sources", "tail"} {
		if !seen[want] {
			t.Errorf("%s cannot be reached: %v", want, seen)
		}
	}
	if !browser.Eval[bool](tab, `document.querySelector('.lane details').open`) {
		t.Error("the details of the sink have closed")
	}
	check(t, tab)
}

// The tail of an object whose name is a script.
func TestTailInABrowser(t *testing.T) {
	p := newTestPage(t, healthy)
	tab := look(t, browser.Start(t), serve(t, p), desk)
	tab.Run("document.querySelector('#tail-form button').click()")
	for n := 0; !browser.Eval[bool](tab, "document.querySelectorAll('#tail-rows li').length > 2"); n++ {
		m := message(event.Updated, "shop", script)
		m.Data = []byte(`{"metadata":{"name":"<script>alert(1)</script>"}}`)
		p.Observe("live", m)
	}
	tab.Run("document.querySelector('#tail-rows details').open = true")
	if text := tab.Text(
		"#tail-rows li",
	); !strings.Contains(text, script) ||
		!strings.Contains(text, `"name": "<script>alert(1)`) {
		t.Errorf("a row is %q", text)
	}
	check(t, tab)
	tab.Display(phone)
	check(t, tab)
	tab.Run("document.querySelector('#tail-stop').click()")
	tab.Wait("document.querySelector('#tail-stop').disabled")
	if title := browser.Eval[string](tab, "document.title"); !strings.HasPrefix(title, "ok") {
		t.Errorf("a script has run: the title is %q", title)
	}
}

// A remote viewer sees the status, and must show a token for the tail.
func TestTokenInABrowser(t *testing.T) {
	p := newTestPage(t, healthy)
	p.IsLocal = func(*http.Request) bool { return false }
	tab := look(t, browser.Start(t), serve(t, p), desk)
	check(t, tab)
	tab.Run("document.querySelector('#token-form input').focus()")
	tab.Press("bad\r")
	tab.Wait("document.querySelector('#token-problem').textContent === 'the token is not valid\\n'")
	tab.Problems() // the 401
	tab.Press("good\r")
	tab.Wait("document.querySelector('#access').hidden")
	for !browser.Eval[bool](tab, "!!document.querySelector('#tail-rows li')") {
		p.Observe("live", message(event.Added, "shop", "web"))
	}
	if browser.Eval[bool](
		tab,
		"document.cookie !== '' || localStorage.length + sessionStorage.length > 0 || location.search !== ''",
	) {
		t.Error("the token is stored")
	}
	check(t, tab)
}

// image is an image of the documentation.
type image struct {
	status func() control.Status
	browser.Look
}

// images returns the images in docs/images by their names.
func images() map[string]image {
	return map[string]image{
		"page-healthy.png": {healthy, browser.Look{Width: 1120, Height: 424}},
		"page-outage.png":  {outage, browser.Look{Width: 1120, Height: 700}},
		"page-phone.png":   {outage, browser.Look{Width: 375, Height: 700, Phone: true, Dark: true}},
		"page-large.png":   {large, browser.Look{Width: 1120, Height: 845, Dark: true}},
		"page-lossy.png":   {lossy, browser.Look{Width: 1120, Height: 980}},
		"page-paused.png":  {paused, browser.Look{Width: 1120, Height: 456}},
		"page-refused.png": {refused, browser.Look{Width: 1120, Height: 486}},
		"page-standby.png": {standby, browser.Look{Width: 1120, Height: 236}},
	}
}

// TestImages writes the images of the documentation with -update. Otherwise it checks that they are there, and that a
// document shows each of them.
func TestImages(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	if *update {
		b := browser.Start(t)
		for name, i := range images() {
			tab := look(t, b, serve(t, newTestPage(t, i.status)), i.Look)
			keep(t, filepath.Join(docs, "images", name), tab.View())
		}
	}
	shown := read(t, filepath.Join(docs, "page.md")) + read(t, filepath.Join(docs, "operations.md"))
	for name, i := range images() {
		content := read(t, filepath.Join(docs, "images", name))
		config, err := png.DecodeConfig(strings.NewReader(content))
		if err != nil || int64(config.Width) != i.Width || len(content) > 200_000 {
			t.Errorf("%s: %d bytes, %+v, %v", name, len(content), config, err)
		}
		if !strings.Contains(shown, "images/"+name) {
			t.Errorf("no document shows %s", name)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
