package assemble

import (
	"os"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

func stdoutKind() kind {
	return kind{build: func(d *Destination, _ *config.Sink) error {
		d.Sink = stdout.New(os.Stdout)
		return nil
	}}
}
