package daemon

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/deltabridge/deltabridge/internal/config"
)

func TestMain(m *testing.M) {
	// The second handler limits the rate of reported errors by the time of the last one in the process. In a bubble of
	// synctest, whose clock begins in 2000, it would wait for decades if a test outside of it was the last.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] //nolint:reassign // that is how handlers are removed
	goleak.VerifyTestMain(m)
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The log has the configured format and level.
func TestLog(t *testing.T) {
	for _, c := range []struct {
		config.Log

		want string
	}{
		{config.Log{Level: "info", Format: "text"}, "level=INFO msg=kept n=1\n"},
		{config.Log{Level: "info", Format: config.LogJSON}, `"level":"INFO","msg":"kept","n":1}` + "\n"},
		{config.Log{Level: "error", Format: "text"}, ""},
	} {
		var out bytes.Buffer
		log := newLogger(c.Format, c.Level, &out)
		log.Debug("left out")
		log.Info("kept", "n", 1)
		if !strings.HasSuffix(out.String(), c.want) || strings.Count(out.String(), "\n") != strings.Count(c.want, "\n") {
			t.Errorf("%+v: %q", c.Log, out.String())
		}
		if !log.Enabled(t.Context(), slog.LevelError) {
			t.Errorf("%+v: errors are not logged", c.Log)
		}
	}
}
