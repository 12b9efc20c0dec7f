package main

import (
	"io"

	"github.com/spf13/cobra"
)

func newConfigCommand(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration that is in effect",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newConfigShowCommand(stdout))
	return cmd
}

func newConfigShowCommand(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the configuration with all defaults and the values of environment variables",
		Long: "show prints a configuration file that has the same meaning as the given one. It contains the defaults of\n" +
			"all keys that have an effect, and the values of environment variables in place of their names. Sinks are\n" +
			"a list. Relative paths of files that the bridge reads are absolute. A configuration contains no secrets,\n" +
			"so the output contains none either: it names the files that contain them, which need not exist.",
		Args: cobra.NoArgs,
	}
	file := newConfigFile(cmd.Flags())
	cmd.RunE = func(*cobra.Command, []string) error {
		cfg, _, err := file.read(true)
		if err != nil {
			return err
		}
		text, err := cfg.Effective()
		if err != nil {
			return err
		}
		_, err = stdout.Write(text)
		return err
	}
	return cmd
}
