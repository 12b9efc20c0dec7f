package evaluate

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
)

// TestOptions configures `bridge test`.
type TestOptions struct {
	// Config returns the configuration for files that name none.
	Config func() (*config.Config, error)
	Run    *regexp.Regexp // only tests whose name matches are run; nil means all tests
}

// Files returns the test files that arguments name. A directory stands for its files *_test.yaml.
func Files(args []string) (files []string, err error) {
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, arg)
			continue
		}
		found, _ := fs.Glob(os.DirFS(arg), "*_test.yaml") // the pattern is valid
		if len(found) == 0 {
			return nil, fmt.Errorf("%s has no files *_test.yaml", arg)
		}
		for _, name := range found {
			files = append(files, filepath.Join(arg, name))
		}
	}
	return files, nil
}

// Test runs the tests of a file.
func (o TestOptions) Test(path string) *Results {
	r := &Results{File: path}
	r.Err = o.test(path, r)
	return r
}

func (o TestOptions) test(path string, r *Results) error {
	f, err := load(path)
	if err != nil {
		return err
	}
	read := o.Config
	if f.Config != "" {
		read = func() (*config.Config, error) {
			cfg, _, err := config.LoadOffline(f.Config)
			return cfg, err
		}
	}
	cfg, err := read()
	if err == nil {
		err = f.check(cfg)
	}
	if err != nil {
		return err
	}
	for n := range f.Tests {
		c := &f.Tests[n]
		if o.Run != nil && !o.Run.MatchString(c.Name) {
			continue
		}
		begin := time.Now()
		failures, err := c.run(cfg)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, f.line(n), err)
		}
		r.Results = append(r.Results, Result{c.Name, f.line(n), failures, time.Since(begin)})
	}
	return nil
}

// run runs a test.
func (c *Case) run(cfg *config.Config) (failures []Failure, err error) {
	e, err := newEvaluator(options{
		cfg: cfg, scopes: assemble.Scopes(cfg), existing: c.story.objects, fields: selectsFields,
		at: time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC),
	}, c.story.served)
	if err != nil {
		return nil, err
	}
	outcomes := map[string][]outcome{} // by sink
	for n := range c.story.changes {
		change, r := &c.story.changes[n], &Report{}
		if r.Sinks, err = e.evaluate(context.Background(), change); err != nil {
			return nil, err
		}
		if err := r.explainWatch(cfg, change, selectsFields); err != nil {
			return nil, err
		}
		for i := range r.Sinks {
			s := &r.Sinks[i]
			outcomes[s.Name] = append(outcomes[s.Name], outcome{c.story.names[n], r, s})
		}
	}
	for _, sink := range slices.Sorted(maps.Keys(c.Expect)) {
		var got []*Message
		for n, o := range outcomes[sink] {
			for _, m := range o.sink.messages {
				m.change = n
				got = append(got, m)
			}
		}
		f := Failure{Sink: sink, pairs: align(c.Expect[sink], got), outcomes: outcomes[sink]}
		if slices.ContainsFunc(f.pairs, func(p pair) bool { return p.fails() }) {
			failures = append(failures, f)
		}
	}
	return failures, nil
}
