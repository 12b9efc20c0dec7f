package boltfile

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestQuarantineName(t *testing.T) {
	at := time.Date(2026, 11, 20, 13, 0, 0, 0, time.FixedZone("", 3600))
	path := filepath.Join(t.TempDir(), "x.db")
	for _, want := range []string{".corrupt-20261120T120000Z", ".corrupt-20261120T120000Z-2", ".corrupt-20261120T120000Z-3"} {
		got := quarantineName(path, "corrupt", at)
		if got != path+want {
			t.Errorf("%s, want %s", got, want)
		}
		if err := os.WriteFile(got, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
