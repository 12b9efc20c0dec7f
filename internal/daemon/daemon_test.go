package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/test/laterformat"
	"github.com/deltabridge/deltabridge/test/poll"
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

// A process whose state a newer version has written is alive and not ready, and says why, until it is stopped.
func TestNewerFormat(t *testing.T) {
	cfg, f := config.Default(), newTestFrontend(t)
	cfg.State.Path = t.TempDir()
	parked := filepath.Join(cfg.State.Path, "parked-a.db")
	laterformat.Write(t, parked)
	var log bytes.Buffer
	b := &bridge{cfg: cfg, reload: f.reload, server: f, log: slog.New(slog.NewTextHandler(&log, nil))}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.during(ctx, b.run) }()
	url := "http://" + f.listener.Addr().String()
	problem := parked + " has format 2, which a newer version has written; this version knows format 1, and has changed nothing"
	if err := poll.Until(t.Context(), 10*time.Millisecond, 10*time.Second, func() error {
		if code, body := getPage(t, url+"/readyz"); code != http.StatusServiceUnavailable ||
			!strings.HasPrefix(body, "not ready:\n- "+problem+": run the newer version again; or ") {
			return fmt.Errorf("/readyz: %d %s", code, body)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if code, body := getPage(t, url+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	var s control.Status
	if _, body := getPage(t, url+control.StatusPath); json.Unmarshal([]byte(body), &s) != nil ||
		s.Verdict.Health != control.Failing || s.Verdict.Text != problem+"." ||
		!strings.HasPrefix(s.Verdict.Remedy, "run the newer version again; or ") {
		t.Error(body)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if strings.Count(log.String(), "staying unready") != 1 {
		t.Error(&log)
	}
}
