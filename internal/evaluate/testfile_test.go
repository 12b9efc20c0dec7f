package evaluate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write writes a file for a test.
func write(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "a_test.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const pod = "{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}}"

// Each file has one mistake, which is reported with its place and a remedy.
func TestMistakes(t *testing.T) {
	test := func(changes, expect string) string {
		return "tests:\n- name: a\n  changes: [" + changes + "]\n  expect: " + expect + "\n"
	}
	for text, want := range map[string]string{
		"tets: []":    `1:1: unknown key "tets" (did you mean tests?)`,
		"tests: []":   "1:8: tests: is empty (add an entry, or remove the key)",
		"objects: []": "1:1: tests: is missing (add tests: ",
		"tests:\n- name: ''\n  changes: [{add: " + pod + "}]\n  expect: {live: []}":                   "2:9: tests[0].name: is empty (example: name: a Pod that fails is sent)",
		test("{add: "+pod+"}", "{live: {}}"):                                                          `4:18: tests[0].expect["live"]: an object is not a valid list`,
		test("{add: "+pod+"}", "{lvie: []}"):                                                          `4:18: tests[0].expect["lvie"]: the configuration has no sink with this name (write live)`,
		test("{add: "+pod+"}", "{live: [{}]}"):                                                        `4:19: tests[0].expect["live"][0].operation: is missing (add operation: added)`,
		test("{add: "+pod+"}", "{live: [{operation: a}]}"):                                            `tests[0].expect["live"][0].operation: "a" is not a valid value (write added, updated, deleted or left)`,
		test("{add: "+pod+"}", "{live: [{operation: added, absent: [a..b]}]}"):                        `tests[0].expect["live"][0].absent[0]: "a..b" is not a valid path`,
		test("{add: "+pod+"}", "{live: [{operation: added, data: {a: 1, a: 2}}]}"):                    `4:51: tests[0].expect["live"][0].data: key "a" is given twice, first in line 4 (keep one of them)`,
		test("{}", "{live: []}"):                                                                      "3:13: tests[0].changes[0]: must have exactly one of the keys add, patch and delete (keep one of them)",
		test("{add: "+pod+", delete: "+pod+"}", "{live: []}"):                                         "3:13: tests[0].changes[0]: must have exactly one of the keys",
		test("{add: [a]}", "{live: []}"):                                                              "tests[0].changes[0].add: ",
		test("{add: {kind: Pod, metadata: {name: a}}}", "{live: []}"):                                 "3:19: tests[0].changes[0].add: has no apiVersion, or it is not a string (example: {apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: web}})",
		test("{add: {apiVersion: v1, metadata: {name: a}}}", "{live: []}"):                            "tests[0].changes[0].add: has no kind, or it is not a string (example: {apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: web}})",
		test("{add: {apiVersion: v1, kind: Pod}}", "{live: []}"):                                      "tests[0].changes[0].add: has no metadata.name, or it is not a string (example: {apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: web}})",
		test("{add: "+pod+"}, {add: "+pod+"}", "{live: []}"):                                          "tests[0].changes[1].add: pods/shop/web already exists (change it with patch, or choose another name)",
		test("{patch: "+pod+"}", "{live: []}"):                                                        "tests[0].changes[0].patch: pods/shop/web does not exist (add it before, or correct its kind, namespace and name)",
		test("{add: "+pod+"}, {delete: "+pod+"}, {delete: "+pod+"}", "{live: []}"):                    "tests[0].changes[2].delete: pods/shop/web does not exist",
		test("{add: "+pod+"}, {add: {apiVersion: v1, kind: Pod, metadata: {name: b}}}", "{live: []}"): "tests[0].changes[1].add: differs from other objects of pods",
		test("{add: &a "+pod+"}", "{live: []}"):                                                       "tests[0].changes[0].add: has an anchor, an alias or a tag, which are not allowed",
		"config: gone.yaml\n" + test("{add: "+pod+"}", "{live: []}"):                                  "config: stat ",
		test("{add: "+pod+"}, {add: {apiVersion: v2, kind: Pod, metadata: {namespace: shop, name: b}}}", "{live: []}"): "tests[0].changes[1].add: " +
			"differs from other objects of pods (use the same apiVersion for all of them",
		test("{add: {apiVersion: v1, kind: Pod, metadata: {name: n}}}", "{live: []}"): "tests[0].changes[0].add: " +
			"has no metadata.name, or it is not a string (example: {apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: web}})",
		"tests: [": "this is not YAML",
	} {
		file := write(t, text)
		r, out := output(t, TestOptions{}, file, "sinks: [{name: live, stdout: {}}]")
		if r.Err == nil || strings.Count(r.Err.Error(), "\n") > 0 || !strings.Contains(r.Err.Error(), file+":") ||
			!strings.Contains(r.Err.Error(), want) || !strings.HasPrefix(out, "ERROR  "+file+"\n") {
			t.Errorf("%s:\n got %v\nwant %s", text, r.Err, want)
		}
	}
}

func TestFilesThatCannotBeRun(t *testing.T) {
	if _, err := load("gone_test.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	text := "tests:\n- name: a\n  changes: [{add: " + pod + "}]\n  expect: {live: []}\n"
	if r, _ := output(
		t,
		TestOptions{},
		write(t, text),
		"snks: []",
	); r.Err == nil ||
		!strings.Contains(r.Err.Error(), "bridge.yaml:1:1") {
		t.Errorf("an invalid configuration: %v", r.Err)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b_test.yaml", "a_test.yaml", "c.yaml", "d_test.yml"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(dir, "c.yaml")
	files, err := Files([]string{other, dir})
	want := []string{other, filepath.Join(dir, "a_test.yaml"), filepath.Join(dir, "b_test.yaml")}
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := Files([]string{filepath.Join(dir, "none")}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	empty := t.TempDir()
	if _, err := Files([]string{empty}); err == nil || err.Error() != empty+" has no files *_test.yaml" {
		t.Error(err)
	}
}
