// Package browser drives a real Chromium in tests. It installs nothing: a test is skipped where there is no Chromium,
// unless CI is set.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long Wait waits, and how long everything else may take.
const patience = 2 * time.Minute

// Browser is a running Chromium. It ends with its test.
type Browser struct{ ctx context.Context }

// Start starts a Chromium with an empty profile.
func Start(t testing.TB) *Browser {
	t.Helper()
	path, err := find()
	switch {
	case err != nil && os.Getenv("CI") == "":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.Flag("no-sandbox", true),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true),
	)
	allocator, endAllocator := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, end := chromedp.NewContext(allocator, chromedp.WithErrorf(t.Logf))
	t.Cleanup(func() {
		end()
		endAllocator()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return &Browser{ctx}
}

func find() (path string, err error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no Chromium: install the package chromium (apt-get install chromium)")
}

// Look is how a page is displayed.
type Look struct {
	Width, Height int64
	Dark          bool // prefers a dark color scheme
	Phone         bool // touch, and the viewport of a phone
}

// Tab is an open page. Its methods end the test if the browser does not answer.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// Open opens a page in a new tab, and waits until it is loaded.
func (b *Browser) Open(t testing.TB, url string, l Look) *Tab {
	t.Helper()
	tab := &Tab{t: t}
	ctx, end := chromedp.NewContext(b.ctx, chromedp.WithListener(tab.listen))
	tab.ctx = ctx
	t.Cleanup(end)
	tab.Display(l)
	tab.do("open "+url, chromedp.Navigate(url))
	return tab
}

// Display changes how the page is displayed.
func (p *Tab) Display(l Look) {
	p.t.Helper()
	scheme := "light"
	if l.Dark {
		scheme = "dark"
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}
	var options []chromedp.EmulateViewportOption
	if l.Phone {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	p.do("display", chromedp.EmulateViewport(l.Width, l.Height, options...),
		chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, media)
			return err
		}))
}

// listen collects what the browser reports: errors of scripts, warnings, requests that failed or that the content
// security policy blocked.
func (p *Tab) listen(event any) {
	var text string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		text = fmt.Sprintf("console.%s", e.Type)
	case *cdplog.EventEntryAdded:
		text = fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL)
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, text)
}

// Problems returns what the browser has reported since the last call.
func (p *Tab) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.problems
	p.problems = nil
	return all
}

func (p *Tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	run(p, what, chromedp.Steps(steps...))
}

func run[T any](p *Tab, what string, a chromedp.Action[T]) T {
	p.t.Helper()
	if err := chromedp.Do(p.ctx); err != nil { // the first call opens the tab, and must not have a limit
		p.t.Fatalf("%s: %v", what, err)
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	result, err := chromedp.Run(ctx, a)
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	return result
}

// Eval returns the value of a JavaScript expression, which may be a promise.
func Eval[T any](p *Tab, expression string) T {
	p.t.Helper()
	return run(p, expression, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Run runs a JavaScript statement.
func (p *Tab) Run(statement string) {
	p.t.Helper()
	Eval[bool](p, statement+"; true")
}

// Wait waits until a JavaScript expression is true.
func (p *Tab) Wait(expression string) {
	p.t.Helper()
	for end := time.Now().Add(patience); !Eval[bool](p, "!!("+expression+")"); {
		if time.Now().After(end) {
			p.t.Fatalf("%s is still false; the page:\n%s", expression, Eval[string](p, "document.body.innerText"))
		}
		Eval[bool](p, "new Promise(done => setTimeout(() => done(true), 50))")
	}
}

// Text returns the visible text of an element.
func (p *Tab) Text(selector string) string {
	p.t.Helper()
	return strings.TrimSpace(Eval[string](p, fmt.Sprintf("document.querySelector(%q).innerText", selector)))
}

// Press presses keys one after another, as kb.Tab, or the characters of a text.
func (p *Tab) Press(keys string) {
	p.t.Helper()
	p.do("press "+keys, chromedp.KeyEvent(keys))
}

// Screenshot returns a PNG image of the whole page.
func (p *Tab) Screenshot() []byte {
	p.t.Helper()
	return run(p, "screenshot", chromedp.FullScreenshot(100))
}

// View returns a PNG image of the part of the page that is visible.
func (p *Tab) View() []byte {
	p.t.Helper()
	return run(p, "screenshot", chromedp.CaptureScreenshot())
}
