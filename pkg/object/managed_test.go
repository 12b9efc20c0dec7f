package object

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type noKeeper struct{}

func (noKeeper) Fetch(*Object) ([]byte, error) { return nil, io.ErrUnexpectedEOF }

// The managedFields are kept if somebody asks for them, and not by who keeps objects.
func TestManagedFields(t *testing.T) {
	const raw = `{"metadata":{"managedFields":[{"manager":"old"}],"name":"x","resourceVersion":"1","managedFields": [{"manager":"kubectl"}] },"kind":"Pod"}`
	decode := func(keep bool) *Object {
		d := NewWatchDecoder(
			io.NopCloser(strings.NewReader(`{"type":"ADDED","object":`+raw+"}\n")),
			"", keep,
		)
		_, o, err := d.Decode()
		if err != nil {
			t.Fatal(err)
		}
		return o.(*Object)
	}
	if got := decode(false).ManagedFieldsJSON(); got != nil {
		t.Errorf("kept %s", got)
	}
	o := decode(true)
	const want = `[{"manager":"kubectl"}]`
	if diff := cmp.Diff(want, string(o.ManagedFieldsJSON())); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(string(o.Raw), "managedFields") {
		t.Errorf("raw has them: %s", o.Raw)
	}
	if r := o.Released(noKeeper{}); r.ManagedFieldsJSON() != nil || o.ManagedFieldsJSON() == nil {
		t.Error("released objects hold none, and the original does")
	}
	if c := o.WithoutManagedFields(); c.ManagedFieldsJSON() != nil || o.ManagedFieldsJSON() == nil ||
		string(c.Raw) != string(o.Raw) {
		t.Error("the copy without them has none, all else, and the original is as it was")
	}
	if o := decode(false); o.WithoutManagedFields() != o {
		t.Error("a copy that nobody needs")
	}

	for _, keep := range []bool{false, true} {
		l := &List{ManagedFields: keep}
		if err := l.decode(
			[]byte(`{"kind":"PodList","apiVersion":"v1","items":[` + raw + `,{"metadata":{"name":"y"}}]}`),
		); err != nil {
			t.Fatal(err)
		}
		if got := string(l.Items[0].ManagedFieldsJSON()); (got == want) != keep || l.Items[1].ManagedFieldsJSON() != nil {
			t.Errorf("keep %v: %q, %q", keep, got, l.Items[1].ManagedFieldsJSON())
		}
	}
}
