package pattern

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNamespaces(t *testing.T) {
	all := []string{"", "default", "kube-system", "team-a", "team-b", "team"}
	tests := []struct {
		name     string
		entries  []string
		want     []string
		literals []string // nil: the list is no list of names
	}{
		{name: "empty", want: all},
		{name: "one name", entries: []string{"team-a"}, want: []string{"team-a"}, literals: []string{"team-a"}},
		{
			name: "names, one twice", entries: []string{"team-b", "default", "team-b"},
			want: []string{"default", "team-b"}, literals: []string{"team-b", "default"},
		},
		{name: "glob", entries: []string{"team-*"}, want: []string{"team-a", "team-b"}},
		{name: "name and glob", entries: []string{"default", "team-?"}, want: []string{"default", "team-a", "team-b"}},
		{name: "class", entries: []string{"team-[a]"}, want: []string{"team-a"}},
		{name: "star", entries: []string{"*"}, want: all},
		{name: "at least one character", entries: []string{"?*"}, want: all[1:]},
		{name: "exclusion only", entries: []string{"!kube-*"}, want: []string{"", "default", "team-a", "team-b", "team"}},
		{name: "exclusion wins behind", entries: []string{"team-*", "!team-b"}, want: []string{"team-a"}},
		{name: "exclusion wins before", entries: []string{"!team-b", "team-*"}, want: []string{"team-a"}},
		{name: "excluded name", entries: []string{"team-a", "!team-b"}, want: []string{"team-a"}},
		{name: "cluster-scoped only", entries: []string{""}, want: []string{""}},
		{name: "cluster-scoped too", entries: []string{"", "default"}, want: []string{"", "default"}},
		{name: "not cluster-scoped", entries: []string{"!"}, want: all[1:]},
		{name: "star without cluster-scoped", entries: []string{"*", "!"}, want: all[1:]},
		{name: "all excluded", entries: []string{"!*"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := ParseNamespaces(tt.entries)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, namespace := range all {
				if m.Matches(namespace) {
					got = append(got, namespace)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("matched namespaces (-want +got):\n%s", diff)
			}
			literals, ok := m.Literals()
			if diff := cmp.Diff(tt.literals, literals); diff != "" || ok != (tt.literals != nil) {
				t.Errorf("Literals, ok = %v (-want +got):\n%s", ok, diff)
			}
			for _, namespace := range all {
				within := slices.ContainsFunc(m.Split(), func(list Namespaces) bool { return list.Matches(namespace) })
				if !m.All() && within != m.Matches(namespace) {
					t.Errorf("%q splits %v", namespace, m.Split())
				}
			}
			if m.All() != (len(tt.entries) == 0) {
				t.Errorf("All = %v", m.All())
			}
		})
	}
}

func TestNamespaceMistakes(t *testing.T) {
	for entry, valid := range map[string]bool{
		"good": true, "Bad": false, "a/b": false, "also-good": true, "!!x": false, "[a": false, "a,b": false,
	} {
		if err := new(Namespaces).Add(entry); (err == nil) != valid {
			t.Errorf("%q: %v", entry, err)
		}
		m, err := ParseNamespaces([]string{"default", entry})
		if (err == nil) != valid || err != nil && !strings.HasPrefix(err.Error(), "[1]: ") || m.All() != (err != nil) {
			t.Errorf("a list with %q: %+v, %v", entry, m, err)
		}
	}
}

// FuzzNamespaces compares with a model: every glob is a regular expression, and the rule for lists is spelled out
// in sets.
func FuzzNamespaces(f *testing.F) {
	f.Add("team-*,!team-b", "team-a")
	f.Add("!kube-*", "")
	f.Add("*,!", "")
	f.Add("a?c,[x-z]*,[^a]", "abc")
	f.Add("", "x")
	f.Fuzz(func(t *testing.T, list, namespace string) {
		var entries []string
		if list != "" {
			entries = strings.Split(list, ",")
		}
		m, err := ParseNamespaces(entries)
		if err != nil {
			return
		}
		// Namespaces have no "/" and are valid text; the model has no character classes.
		if strings.ContainsAny(namespace, "/\ufffd\n") || strings.ToValidUTF8(namespace, "") != namespace ||
			strings.Contains(list, "[") {
			m.Matches(namespace)
			return
		}
		if got, want := m.Matches(namespace), namespacesModel(entries, namespace); got != want {
			t.Errorf("%q matches %q: %v, model: %v", entries, namespace, got, want)
		}
	})
}

func namespacesModel(entries []string, namespace string) bool {
	matches := func(glob string) bool {
		expr := regexp.QuoteMeta(glob)
		expr = strings.ReplaceAll(strings.ReplaceAll(expr, `\*`, `.*`), `\?`, `.`)
		return regexp.MustCompile(`^(?:` + expr + `)$`).MatchString(namespace)
	}
	excluding := func(entry string) bool { return strings.HasPrefix(entry, "!") }
	included := slices.ContainsFunc(entries, func(e string) bool { return !excluding(e) && matches(e) })
	excluded := slices.ContainsFunc(entries, func(e string) bool { return excluding(e) && matches(e[1:]) })
	onlyExclusions := !slices.ContainsFunc(entries, func(e string) bool { return !excluding(e) })
	return (included || onlyExclusions) && !excluded
}

func TestNamespaceGlobIsPathMatch(t *testing.T) {
	names := []string{"", "a", "ab", "abc", "b", "team-", "team-a", "team", "kube-system", "-"}
	for _, glob := range []string{"*", "a*", "ab*", "team-*", "**", "*-*", "?*", "[a-b]*", "*a", "a", "", "[a]", "a?"} {
		m, err := ParseNamespaces([]string{glob})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if want, err := path.Match(glob, name); err != nil || m.Matches(name) != want {
				t.Errorf("%q of %q: %t, %v", name, glob, m.Matches(name), err)
			}
		}
	}
}

// The canonical form depends neither on the order nor on repetitions: the checkpoint has it.
func TestCanonicalNamespaces(t *testing.T) {
	for want, lists := range map[string][][]string{
		"":        {nil, {}, {""}},
		"!b,a*":   {{"a*", "!b"}, {"!b", "a*", "a*"}},
		"!,*":     {{"*", "!"}},
		",team-a": {{"team-a", ""}, {"", "team-a", "team-a"}},
	} {
		for _, list := range lists {
			if m, err := ParseNamespaces(list); err != nil || m.String() != want {
				t.Errorf("%q: %q, %v, want %q", list, m, err, want)
			}
		}
	}
}
