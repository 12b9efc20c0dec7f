package natsconn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

func TestServerAddress(t *testing.T) {
	for raw, want := range map[string]string{
		"nats://a:4223": "a:4223", "nats://a": "a:4222", "a": "a:4222", "a:1": "a:1", " tls://a ": "a:4222",
		"ws://a": "a:80", "wss://a": "a:443", "wss://a:8443": "a:8443", "nats://user:secret@[::1]:1": "[::1]:1",
		"nats://a b": "", "nats://a:%zz": "",
	} {
		_, addr, err := serverAddress(raw)
		if addr != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v; want %q", raw, addr, err, want)
		}
	}
}

// An attempt at something that is no URL repeats nothing of it: it may hold a password.
func TestAttemptAtNoURL(t *testing.T) {
	a := &Access{URLs: []string{"nats://user:s3cret@a b"}, Timeout: time.Second}
	attempt, findings, err := a.First(t.Context())
	if attempt != nil || len(findings) != 1 || findings[0].Step != sinks.StepResolve ||
		strings.Contains(fmt.Sprint(err, findings), "s3cret") {
		t.Errorf("%v, %+v, %v", attempt, findings, err)
	}
}

// A denial ends the wait for an answer, and is the error; what succeeds is no error, whatever was denied before.
func TestAsk(t *testing.T) {
	denied := fmt.Errorf("%w: Permissions Violation for Publish to %q", natsgo.ErrPermissionViolation, "k8s.a")
	synctest.Test(t, func(t *testing.T) {
		var d Denials
		silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		time.AfterFunc(time.Second, func() { d.note(errors.New("something else")); d.note(denied) })
		start := time.Now()
		if err := d.Ask(t.Context(), silent); !errors.Is(err, denied) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := d.Ask(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("what succeeds: %v", err)
		}
		late := errors.New("late")
		if err := d.Ask(t.Context(), func(context.Context) error { return late }); !errors.Is(err, denied) {
			t.Errorf("a denial before the question: %v", err)
		}
		d.forget()
		if err := d.Ask(t.Context(), func(context.Context) error { return late }); !errors.Is(err, late) {
			t.Errorf("after forget: %v", err)
		}
		d.note(denied) // while nothing is asked
		if err := d.AskOptional(t.Context(), func(context.Context) error { return late }); !errors.Is(err, late) {
			t.Errorf("AskOptional: %v", err)
		}
		time.AfterFunc(time.Second, func() { d.note(denied) })
		begun := func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Minute):
				return late
			}
		}
		if err := d.Ask(t.Context(), begun, "$JS.API."); !errors.Is(err, late) {
			t.Errorf("a denial of another subject: %v", err)
		}
		d.note(denied) // the next request has the same subjects
		if err := d.Ask(t.Context(), begun, "$JS.API.", "k8s."); !errors.Is(err, late) {
			t.Errorf("a denial from before: %v", err)
		}
		time.AfterFunc(time.Second, func() { d.note(denied) })
		if err := d.Ask(t.Context(), begun, "$JS.API.", "k8s."); !errors.Is(err, denied) {
			t.Errorf("a denial of one of the subjects: %v", err)
		}
		d.note(denied)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.Ask(ctx, silent); !errors.Is(err, denied) {
			t.Errorf("%v", err)
		}
	})
	d := Denials{Forbidden: make(chan string, 2)}
	d.note(errors.New(`Permissions Violation for Publish to "k8s.b"`))
	d.note(denied)
	if got := <-d.Forbidden; got != "k8s.a" || len(d.Forbidden) > 0 {
		t.Errorf("subject %q, %d more", got, len(d.Forbidden))
	}
}

func TestDenied(t *testing.T) {
	a := Access{Auth: Auth{User: "bridge"}}
	for subject, want := range map[string]string{
		"_INBOX.x.*":              `on the server, allow user "bridge" to subscribe to _INBOX.>, or set nats.inboxPrefix`,
		"$JS.API.STREAM.INFO.K8S": `on the server, allow user "bridge" to publish to $JS.API.STREAM.INFO.K8S`,
		"k8s.a":                   `on the server, allow user "bridge" to publish to k8s.*, or change nats.subject`,
	} {
		err := fmt.Errorf("%w: Permissions Violation for Publish to %q", natsgo.ErrPermissionViolation, subject)
		e := a.Denied("not published", err, "k8s.*")
		if e.Remedy != want || !errors.Is(e, natsgo.ErrPermissionViolation) || !sinks.IsRejected(e) {
			t.Errorf("%s: %q, want %q", subject, e.Remedy, want)
		}
		if text := fmt.Sprintf("not published: Permissions Violation for Publish to %q", subject); e.Err.Error() != text {
			t.Errorf("%q, want %q", e.Err, text)
		}
	}
}

// The files are read and understood before a connection is made; an error names the key and repeats nothing of a
// secret.
func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := user.PublicKey()
	seed, _ := user.Seed()
	nkey, other, empty := file("nkey", string(seed)+"\n"), file("other", "s3cret"), file("empty", "\n")
	for _, c := range []struct {
		name  string
		auth  Auth
		who   string
		key   string // of the error; empty: none
		cause string
	}{
		{"none", Auth{}, "a client without credentials", "", ""},
		{"nkey", Auth{NkeyFile: nkey}, "the nkey with the public key " + public, "", ""},
		{"token", Auth{TokenFile: other}, "the token", "", ""},
		{"password", Auth{User: "bridge", PasswordFile: other}, `user "bridge"`, "", ""},
		{"no nkey", Auth{NkeyFile: other}, "the nkey", "nats.nkeyFile", "does not contain the seed of a user nkey"},
		{"no credentials", Auth{CredentialsFile: other}, "the credentials", "nats.credentialsFile", "does not contain the seed of a user nkey"},
		{"empty", Auth{TokenFile: empty}, "the token", "nats.tokenFile", "is empty"},
		{"missing", Auth{User: "bridge", PasswordFile: dir + "/gone"}, `user "bridge"`, "nats.passwordFile", "no such file"},
	} {
		a := Access{URLs: []string{"nats://a"}, Auth: c.auth}
		files, err := a.CheckFiles()
		var ce *sinks.ConnectError
		switch errors.As(err, &ce); {
		case a.Auth.Who() != c.who:
			t.Errorf("%s: %q, want %q", c.name, a.Auth.Who(), c.who)
		case len(files) != 1 && c.auth != Auth{}:
			t.Errorf("%s: files %q", c.name, files)
		case c.key == "" && err != nil, c.key != "" && (ce == nil || ce.Key != c.key || ce.Step != sinks.StepFiles):
			t.Errorf("%s: %v, want one about %q", c.name, err, c.key)
		case c.key != "" && !strings.Contains(err.Error(), c.cause), strings.Contains(fmt.Sprint(err), "s3cret"):
			t.Errorf("%s: %v, want %q", c.name, err, c.cause)
		}
	}
}
