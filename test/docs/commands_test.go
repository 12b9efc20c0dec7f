package docs_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// programs are the programs that the documents use, by absolute path.
type programs struct{ bridge, helm string }

// build makes the programs. Helm takes minutes the first time and nothing later.
func build(t *testing.T) programs {
	t.Helper()
	helm, err := filepath.Abs(filepath.Join(root, "bin", "tools", "helm"))
	if err != nil {
		t.Fatal(err)
	}
	p := programs{bridge: filepath.Join(t.TempDir(), "bridge"), helm: helm}
	if out, err := run(t, root, "make", "-s", "bin/tools/helm"); err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
	// Unlike "go build", "go run" caches programs.
	if out, err := run(t, root, "go", "run", "-exec=cp", "-ldflags=-s -w", "./cmd/bridge", p.bridge); err != nil {
		t.Fatalf("go run -exec=cp: %v\n%s", err, out)
	}
	return p
}

// run runs a program to its end and returns what it printed.
func run(t *testing.T, dir, program string, args ...string) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var all bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &all, &all
	cmd.Env = append(os.Environ(), "DELTABRIDGE_CONFIG=", "KUBECONFIG=")
	err = cmd.Run()
	return all.String(), err
}

// pages returns the text of the pages that show commands, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/integrations/*.md", "charts/deltabridge/README.md", "examples/consumers/README.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %v", pattern, paths, err)
		}
		for _, path := range paths {
			if name, _ := filepath.Rel(root, path); name != "CHANGELOG.md" { // which names what is gone, too
				all[name] = read(t, name)
			}
		}
	}
	return all
}

var fence = regexp.MustCompile("(?ms)^( *)```([a-z]+)\n(.*?)^ *```")

// blocks returns the code blocks in a language, without their indentation.
func blocks(page, language string) (all []string) {
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		if m[2] == language {
			all = append(all, strings.ReplaceAll("\n"+m[3], "\n"+m[1], "\n")[1:])
		}
	}
	return all
}

// command is a command of a shell block, split into words. It may write a file: input is then the text of a here-document.
type command struct {
	words []string
	file  string
	input string
}

var hereDocument = regexp.MustCompile(`(?ms)^cat > (\S+) <<'(\w+)'\n(.*?)^(\w+)\n`)

// commands returns the commands of a shell block in their order.
func commands(block string) (all []command) {
	block = strings.ReplaceAll(block, "\\\n", " ")
	for rest := block; rest != ""; {
		if at := hereDocument.FindStringSubmatchIndex(rest); at != nil && at[0] == 0 {
			all = append(all, command{file: rest[at[2]:at[3]], input: rest[at[6]:at[7]]})
			rest = rest[at[1]:]
			continue
		}
		line, after, _ := strings.Cut(rest, "\n")
		rest = after
		for _, words := range split(line) {
			all = append(all, command{words: words})
		}
	}
	return all
}

// split returns the commands of a line of shell, each split into words.
func split(line string) (all [][]string) {
	var words []string
	word, quote, started := "", rune(0), false
	end := func(last bool) {
		if started {
			words = append(words, word)
		}
		if word, started = "", false; last && len(words) > 0 {
			all, words = append(all, words), nil
		}
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '\'' || r == '"':
			quote, started = r, true
		case r == '#' && !started:
			end(true)
			return all
		case strings.ContainsRune("|&;<>", r):
			end(true)
		case r == ' ' || r == '\t':
			end(false)
		default:
			word, started = word+string(r), true
		}
	}
	end(true)
	return all
}

var (
	quotedBridge = regexp.MustCompile("`(bridge [a-z][^`]*)`")
	target       = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
)

// TestPages: what the pages tell people to run exists, and the files that they show are accepted.
func TestPages(t *testing.T) {
	p := build(t)
	t.Run("commands", func(t *testing.T) { checkCommands(t, p) })
	t.Run("files", func(t *testing.T) { checkFiles(t, p) })
}

// checkCommands checks the commands: `bridge` has the commands and flags, Helm has the flags, make has the targets, and
// the repository has the files.
func checkCommands(t *testing.T, p programs) {
	t.Helper()
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	checked := map[string]bool{} // commands of bridge and helm
	for page, text := range pages(t) {
		var all []command
		for _, block := range blocks(text, "sh") {
			all = append(all, commands(block)...)
		}
		for _, m := range quotedBridge.FindAllStringSubmatch(strings.Join(strings.Fields(text), " "), -1) {
			all = append(all, commands(strings.NewReplacer("[", "", "]", "").Replace(m[1]))[:1]...)
		}
		for _, c := range all {
			for n, word := range c.words {
				args := c.words[n+1:]
				switch {
				case word == "bridge" || word == "bin/bridge":
					checkBridge(t, page, p.bridge, args, checked)
				case word == "helm" && n == 0:
					checkHelp(t, page, p.helm, args, checked)
				case word == "make" && n == 0:
					for _, arg := range args {
						if !strings.ContainsAny(arg, "=-") && !targets[arg] {
							t.Errorf("%s: make has no target %s", page, arg)
						}
					}
				case regexp.MustCompile(`^(\./)?(charts|docs|examples|test)/[\w./-]+$`).MatchString(word):
					if _, err := os.Stat(filepath.Join(root, word)); err != nil {
						t.Errorf("%s: %v: %v", page, c.words, err)
					}
				}
			}
		}
	}
	if len(checked) < 45 {
		t.Errorf("only %d commands were found", len(checked))
	}
}

// checkBridge checks that a command of bridge exists and has the flags.
func checkBridge(t *testing.T, page, program string, args []string, checked map[string]bool) {
	t.Helper()
	if len(args) == 0 {
		return
	}
	help := checkHelp(t, page, program, args, checked)
	// With --help, a group of commands does not look at the name of the command.
	if len(args) > 1 && strings.Contains(help, "Available Commands:") && !strings.HasPrefix(args[1], "-") &&
		args[1] != "..." {
		t.Errorf("%s: bridge %v: there is no such command", page, args)
	}
}

// checkHelp runs a program with --help, which reports unknown commands and flags, and returns what it prints.
func checkHelp(t *testing.T, page, program string, args []string, checked map[string]bool) string {
	t.Helper()
	name := fmt.Sprint(filepath.Base(program), args)
	if checked[name] {
		return ""
	}
	checked[name] = true
	out, err := run(t, root, program, append(slices.Clone(args), "--help")...)
	if err != nil {
		t.Errorf("%s: %s: %v\n%s", page, name, err, out)
	}
	return out
}

// checkFiles checks the files: a block that begins with `# values.yaml` must be accepted by the chart, and its
// configuration by `bridge check`; one that begins with `# bridge.yaml` by `bridge check`. What a page writes to a file
// and installs is checked as the page does it.
func checkFiles(t *testing.T, p programs) {
	t.Helper()
	found := 0
	for page, text := range pages(t) {
		dir := t.TempDir()
		charts, err := filepath.Abs(filepath.Join(root, "charts"))
		if err == nil {
			err = os.Symlink(charts, filepath.Join(dir, "charts"))
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range blocks(text, "yaml") {
			switch name, _, _ := strings.Cut(block, "\n"); name {
			case "# bridge.yaml":
				found++
				checkConfig(t, page, p, block)
			case "# values.yaml":
				found++
				write(t, filepath.Join(dir, "block.yaml"), block)
				checkRelease(t, page, p, dir, "template", "deltabridge", "charts/deltabridge", "-f", "block.yaml")
			}
		}
		for _, block := range blocks(text, "sh") {
			for _, c := range commands(block) {
				if c.file != "" {
					write(t, filepath.Join(dir, c.file), c.input)
				}
				if files, _ := filepath.Glob(filepath.Join(dir, "*.yaml")); len(c.words) > 3 && c.words[0] == "helm" &&
					c.words[3] == "charts/deltabridge" && slices.Contains(files, filepath.Join(dir, "values.yaml")) {
					found++
					checkRelease(t, page, p, dir, c.words[1:]...)
				}
			}
		}
	}
	if found < 7 {
		t.Errorf("only %d files were found", found)
	}
}

// checkRelease renders a release as `helm install` or `helm upgrade` does, and checks its configuration.
func checkRelease(t *testing.T, page string, p programs, dir string, args ...string) {
	t.Helper()
	out, err := run(t, dir, p.helm, append([]string{"template"}, args[1:]...)...)
	if err != nil {
		t.Errorf("%s: helm %v: %v\n%s", page, args, err, out)
		return
	}
	for text := range strings.SplitSeq(out, "\n---\n") {
		var object struct {
			Kind string            `json:"kind"`
			Data map[string]string `json:"data"`
		}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Errorf("%s: %v in\n%s", page, err, text)
		}
		if config, ok := object.Data["bridge.yaml"]; ok && object.Kind == "ConfigMap" {
			checkConfig(t, page, p, config)
			return
		}
	}
	t.Errorf("%s: helm %v renders no configuration", page, args)
}

var mounted = regexp.MustCompile(`/etc/deltabridge/[\w./-]+`)

// checkConfig runs `bridge check` on a configuration, where the files that it names exist.
func checkConfig(t *testing.T, page string, p programs, config string) {
	t.Helper()
	dir := t.TempDir()
	for _, file := range mounted.FindAllString(config, -1) {
		write(t, filepath.Join(dir, file), strings.Repeat("x", 32)) // long enough for redactionKeyFile
	}
	config = strings.NewReplacer("/etc/deltabridge/", dir+"/etc/deltabridge/", "/var/lib/deltabridge", dir).Replace(config)
	path := filepath.Join(dir, "bridge.yaml")
	write(t, path, config)
	if out, err := run(t, dir, p.bridge, "check", "--config", path); err != nil {
		t.Errorf("%s: bridge check: %v\n%s\nof:\n%s", page, err, out, config)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
