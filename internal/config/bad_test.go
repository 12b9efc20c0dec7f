package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each testdata/*.bad.yaml has a *.bad.txt with the messages that it gives, all of them.
func TestBadFiles(t *testing.T) {
	t.Chdir("testdata") // so that messages name the files alone
	files, err := filepath.Glob("*.bad.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no bad files: %v", err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			c, err := Load(file)
			if err == nil || c != nil {
				t.Fatalf("Load gave %v and the error %v", c, err)
			}
			expected := strings.TrimSuffix(file, "yaml") + "txt"
			if *update {
				if err := os.WriteFile(expected, []byte(err.Error()+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, readErr := os.ReadFile(expected)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if diff := cmp.Diff(string(want), err.Error()+"\n"); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Error("a message repeats a secret")
			}
		})
	}
}
