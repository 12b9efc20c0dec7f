package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/evaluate"
)

func newTestCommand(stdout io.Writer) *cobra.Command {
	var run, junit string
	var o evaluate.TestOptions
	cmd := &cobra.Command{
		Use:   "test [FILE | DIRECTORY]...",
		Short: "Test which events a configuration sends",
		Long: "test runs the tests in files: each has changes of objects, and the events that sinks must be sent because\n" +
			"of them. It requires neither a cluster nor a broker. docs/testing.md describes the files.\n\n" +
			"A directory stands for its files *_test.yaml. Without arguments, test uses the directory of the\n" +
			"configuration. It exits with 1 if a test fails, and with 2 if a test file is invalid.",
		Example: "  bridge test -c bridge.yaml\n" +
			"  bridge test -c bridge.yaml tests/ --junit report.xml\n" +
			"  bridge test -c bridge.yaml audit_test.yaml --run Pod",
	}
	flags := cmd.Flags()
	file := newConfigFile(flags)
	flags.StringVar(&run, "run", "", "run only tests whose name matches this `regexp`")
	flags.StringVar(&junit, "junit", "", "write the results to this `file` as JUnit XML")
	cmd.RunE = func(_ *cobra.Command, args []string) (err error) {
		if o.Run, err = regexp.Compile(run); err != nil {
			return usageError(fmt.Errorf("--run: %w", err))
		}
		cfg, _, missing := file.read(true)
		if missing != nil {
			if len(args) == 0 || !errors.Is(missing, errNoConfig) { // test files may name their configuration
				return missing
			}
			missing = fmt.Errorf("the file has no key config, and there is %w", missing)
		}
		o.Config = func() (*config.Config, error) { return cfg, missing }
		if len(args) == 0 {
			path, _, _ := file.find() // read has found it
			args = []string{filepath.Dir(path)}
		}
		files, err := evaluate.Files(args)
		if err != nil {
			return &exitError{err, exitPartly}
		}
		return testFiles(stdout, &o, files, junit)
	}
	return cmd
}

// testFiles runs the tests of files, and prints the results.
func testFiles(stdout io.Writer, o *evaluate.TestOptions, files []string, junit string) (err error) {
	var reports []*evaluate.Results
	failed, tests, invalid := 0, 0, 0
	for _, name := range files {
		r := o.Test(name)
		if err := r.WriteTable(stdout, consoleStyle(stdout)); err != nil {
			return err
		}
		reports = append(reports, r)
		failed, tests = failed+r.Failed(), tests+len(r.Results)
		if r.Err != nil {
			invalid++
		}
	}
	if junit != "" {
		if err := writeJUnit(junit, reports); err != nil {
			return err
		}
	}
	switch {
	case invalid > 0:
		return &exitError{fmt.Errorf("the tests of %d of %d files could not be run", invalid, len(files)), exitPartly}
	case failed > 0:
		return fmt.Errorf("%d of %d tests failed", failed, tests)
	}
	return nil
}

func writeJUnit(path string, reports []*evaluate.Results) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(evaluate.WriteJUnit(out, reports), out.Close())
}
