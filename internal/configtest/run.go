package configtest

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
)

// Options configures Test.
type Options struct {
	// Config returns the configuration for files that name none.
	Config func() (*config.Config, error)
	Run    *regexp.Regexp // only tests whose name matches are run; nil means all tests
	Update bool           // write the events that were sent to the files, in place of the expected ones
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
		found, err := fs.Glob(os.DirFS(arg), "*_test.yaml")
		if err != nil {
			return nil, err
		}
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
func (o Options) Test(path string) *Report {
	r := &Report{File: path}
	r.Err = o.test(path, r)
	return r
}

func (o *Options) test(path string, r *Report) error {
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
	updates := map[int][]Failure{} // by test
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
		if o.Update && len(failures) > 0 {
			updates[n], failures = failures, nil
		}
		r.Results = append(r.Results, Result{c.Name, f.line(n), failures, time.Since(begin)})
	}
	if len(updates) > 0 {
		r.Updated = true
		return f.update(updates)
	}
	return nil
}

// run runs a test.
func (c *Case) run(cfg *config.Config) (failures []Failure, err error) {
	p, err := play(cfg, c.story)
	if err != nil {
		return nil, err
	}
	for _, sink := range slices.Sorted(maps.Keys(c.Expect)) {
		f := Failure{Sink: sink, pairs: align(c.Expect[sink], p.sent[sink]), notes: map[int][]string{}}
		if !slices.ContainsFunc(f.pairs, pair.fails) {
			continue
		}
		for n := range c.story.changes {
			f.names = append(f.names, c.story.changes[n].name)
		}
		if err := f.explain(p, c.story); err != nil {
			return nil, err
		}
		failures = append(failures, f)
	}
	return failures, nil
}

// fails reports whether an event was not sent as expected.
func (p pair) fails() bool { return p.want == nil || p.got == nil || len(p.differences) > 0 }

// explain notes why changes caused no event, or one that is not expected.
func (f *Failure) explain(p *player, s *story) (err error) {
	sent := map[int]bool{}
	for _, pair := range f.pairs {
		if pair.got != nil {
			sent[pair.got.change] = true
		}
		if pair.want == nil {
			text, failed := p.whySent(f.Sink, &s.changes[pair.got.change-1])
			if err = cmp.Or(err, failed); text != "" {
				f.notes[pair.got.change] = []string{text}
			}
		}
	}
	for n := range s.changes {
		if !sent[n+1] && err == nil {
			f.notes[n+1], err = p.whyNot(s, f.Sink, &s.changes[n])
		}
	}
	return err
}
