package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
)

// The effective configuration of each valid file in this repository has the same meaning as the file.
func TestEffective(t *testing.T) {
	files := map[string]string{"default": ""}
	for _, pattern := range []string{"testdata/*.yaml", "../../examples/*.yaml"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) < 3 {
			t.Fatal(names, err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, ".bad.yaml") {
				continue
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = string(data)
		}
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range blocks.FindAllStringSubmatch(string(data), -1) {
			files[page+":\n"+block[1]] = block[1]
		}
	}
	valid := 0
	for name, text := range files {
		c, err := parseOffline(absolute(t, "testdata/bridge.yaml"), text)
		if err != nil {
			continue
		}
		valid++
		checkEffective(t, name, c)
	}
	if valid < 30 {
		t.Errorf("only %d configurations are valid", valid)
	}
}

// parseOffline is Parse, but the files that the configuration names need not exist.
func parseOffline(name, text string) (*Config, error) {
	c, at := strictyaml.DecodeOffline[Config](name, []byte(text))
	return c.checked(at)
}

func absolute(t testing.TB, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// checkEffective checks that the effective configuration of c has the same meaning as c.
func checkEffective(t *testing.T, name string, c *Config) {
	t.Helper()
	text, err := c.Effective()
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	again, err := parseOffline("elsewhere/bridge.yaml", string(text))
	if err != nil {
		t.Errorf("%s: %v\n%s", name, err, text)
		return
	}
	if diff := cmp.Diff(c, again, cmpopts.EquateEmpty(),
		cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Errorf("%s (-file +effective):\n%s\n%s", name, diff, text)
	}
}

// Values that YAML or the bridge would read as something else.
func TestEffectiveValues(t *testing.T) {
	t.Setenv("DELTABRIDGE_TEST_CLUSTER", "42")
	c := mustParse(t, `
cluster: ${DELTABRIDGE_TEST_CLUSTER}
shutdownTimeout: 90m
sinks:
  true:
    filters:
      - {when: "object.a == '$${x}' && object.b == 'true'"}
      - when: |-
          object.a ==
          	'b' // 1

            && true
    stdout: {}
    buffer: {bytes: 100000, spill: {maxBytes: 1536Ki}}
`)
	text, err := c.Effective()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"cluster: '42'", "shutdownTimeout: 1h30m", "name: 'true'", "bytes: 100000", "maxBytes: 1536Ki", "log:", "level: info",
		"overflow: block", "payload: object", "stdout: {}",
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	if strings.Contains(string(text), "oversize") {
		t.Error("oversize has no effect for stdout")
	}
	if checkEffective(t, "values", c); t.Failed() {
		t.Logf("%s", text)
	}
}
