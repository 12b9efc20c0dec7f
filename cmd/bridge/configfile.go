package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deltabridge/deltabridge/internal/config"
)

const (
	// configVariable is the environment variable that names the configuration file if --config is not set. The chart sets
	// it in its Pod.
	configVariable = "DELTABRIDGE_CONFIG"
	// configDefault is the configuration file if neither is set.
	configDefault = "bridge.yaml"
)

var errNoConfig = &exitError{
	errors.New("no configuration: set --config or " + configVariable + ", or create ./" + configDefault), exitConfig,
}

// configFile is the configuration file of a command: the value of --config, or else of DELTABRIDGE_CONFIG, or else
// ./bridge.yaml.
type configFile struct {
	flag *pflag.Flag
}

// newConfigFile adds --config to the flags of a command.
func newConfigFile(flags *pflag.FlagSet) *configFile {
	flags.StringP("config", "c", "", "configuration `file` (default: $"+configVariable+", or else ./"+configDefault+")")
	_ = flags.SetAnnotation("config", cobra.BashCompFilenameExt, []string{"yaml", "yml"}) // the flag exists
	return &configFile{flags.Lookup("config")}
}

// find returns the path of the file and what names it. It returns errNoConfig if nothing names a file and ./bridge.yaml
// does not exist.
func (c *configFile) find() (path, namedBy string, err error) {
	if path = c.flag.Value.String(); path != "" {
		return path, "--config", nil
	}
	if c.flag.Changed { // for example --config=$UNSET
		return "", "", usageError(errors.New("--config is empty"))
	}
	if path = os.Getenv(configVariable); path != "" {
		return path, configVariable, nil
	}
	if _, err := os.Stat(configDefault); errors.Is(err, fs.ErrNotExist) {
		return "", "", errNoConfig
	}
	return configDefault, "default", nil
}

// load reads the configuration.
func (c *configFile) load() (*config.Config, error) {
	cfg, _, err := c.read(false)
	return cfg, err
}

// read reads the configuration. With offline, for a command that does not use the files that the configuration names,
// these files need not exist.
func (c *configFile) read(offline bool) (cfg *config.Config, notes config.Notes, err error) {
	path, namedBy, err := c.find()
	switch {
	case err != nil:
		return nil, notes, err
	case offline:
		cfg, notes, err = config.LoadOffline(path)
	default:
		cfg, err = config.Load(path)
	}
	if err == nil {
		return cfg, notes, nil
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok { // mistakes in the file name it themselves
		err = fmt.Errorf("configuration file (%s): %w", namedBy, err)
	}
	return nil, notes, &exitError{err, exitConfig}
}

// completion returns a function with which the shell completes values from the configuration.
func (c *configFile) completion(values func(*config.Config) []string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		cfg, _, err := c.read(true)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return values(cfg), cobra.ShellCompDirectiveNoFileComp
	}
}

// addSink adds --sink to the flags of a command.
func (c *configFile) addSink(cmd *cobra.Command, sink *string, usage string) {
	cmd.Flags().StringVar(sink, "sink", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("sink", c.completion(func(cfg *config.Config) []string { // the flag exists
		return config.SinkNames(cfg.Sinks)
	}))
}

// selectSinks returns the sink with the given name. If name is empty, it returns all sinks.
func selectSinks(cfg *config.Config, name string) ([]config.Sink, error) {
	if name == "" {
		return cfg.Sinks, nil
	}
	s := cfg.Sink(name)
	if s == nil {
		names := strings.Join(config.SinkNames(cfg.Sinks), ", ")
		return nil, usageError(fmt.Errorf("--sink %s: there is no such sink; use one of %s", name, names))
	}
	return []config.Sink{*s}, nil
}

// watchedResources returns the resources that `watch` names without wildcards.
func watchedResources(cfg *config.Config) (names []string) {
	for n := range cfg.Watch {
		for _, name := range cfg.Watch[n].Resources {
			if !strings.ContainsAny(name, "*?[") {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
