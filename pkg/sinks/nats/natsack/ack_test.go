package natsack

import (
	"errors"
	"fmt"
	"testing"

	natsgo "github.com/nats-io/nats.go"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

func TestRead(t *testing.T) {
	const plain, permanent, oversize, maybe, ok = "plain", "permanent", "oversize", "maybe", "ok"
	tests := []struct {
		data, class string
		recheck     bool
	}{
		{`{"stream":"K8S","seq":17}`, ok, false},
		{`{"stream":"K8S", "seq":17}`, ok, false},
		{`{"stream":"K8S","domain":"hub","seq":17}`, ok, false},
		{`{"stream":"K8S","seq":17,"duplicate":true}`, ok, false},
		{
			`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"K8S","seq":0}`,
			plain,
			false,
		},
		{
			`{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"K8S","seq":0}`,
			oversize,
			false,
		},
		{
			`{"error":{"code":400,"err_code":10097,"description":"header size exceeds maximum allowed of 64k"}}`,
			oversize,
			false,
		},
		{`{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"}}`, plain, true},
		{`{"error":{"code":404,"err_code":10059,"description":"stream not found"}}`, plain, true},
		{`{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"}}`, maybe, false},
		{`{"error":{"code":503,"err_code":10023,"description":"insufficient resources"}}`, plain, false},
		{`{"error":{"code":429,"err_code":10167,"description":"too many requests"}}`, plain, false},
		{`{"error":{"code":500,"err_code":60000,"description":"from the future"}}`, plain, false},
		{`{"stream":"K8S","seq":}`, maybe, false},
		{`{}`, maybe, false},
		{``, maybe, false},
		{`+OK`, maybe, false},
	}
	class := func(err error) string {
		switch {
		case err == nil:
			return ok
		case sinks.IsPermanent(err) && errors.Is(err, sinks.ErrOversize):
			return oversize
		case sinks.IsPermanent(err):
			return permanent
		case sinks.IsMaybeWritten(err):
			return maybe
		default:
			return plain
		}
	}
	for _, test := range tests {
		a := NewReader("K8S", "").Read(&natsgo.Msg{Data: []byte(test.data)})
		if class(a.Err) != test.class || a.Recheck != test.recheck {
			t.Errorf("%s: %+v (%s), want %s", test.data, a, class(a.Err), test.class)
		}
	}
	for domain, foreign := range map[string]bool{"hub": false, "leaf": true} {
		data := fmt.Appendf(nil, `{"stream":"K8S","domain":%q,"seq":7}`, domain)
		if a := NewReader("K8S", "hub").Read(&natsgo.Msg{Data: data}); a.Foreign != foreign || a.Err != nil {
			t.Errorf("from the domain %s: %+v", domain, a)
		}
	}
	a := NewReader("K8S", "").Read(&natsgo.Msg{Header: natsgo.Header{"Status": {"503"}}})
	if class(a.Err) != plain || !a.Recheck {
		t.Errorf("no responders: %+v", a)
	}
}

// The answers that name a sequence.
func TestSequenceOfAnAnswer(t *testing.T) {
	refusal := func(code int, text string) string {
		return fmt.Sprintf(`{"error":{"code":400,"err_code":%d,"description":%q},"stream":"K8S","seq":0}`, code, text)
	}
	for data, want := range map[string]Ack{
		`{"stream":"K8S","seq":17}`:                      {Sequence: 17},
		`{"stream":"K8S", "seq":17}`:                     {Sequence: 17},
		`{"stream":"K8S","seq":17,"duplicate":true}`:     {Sequence: 17, Duplicate: true},
		refusal(10071, "wrong last Sequence: 3"):         {Refused: true, Numbered: true, Sequence: 3},
		refusal(10071, "wrong last sequence: 0"):         {Refused: true, Numbered: true},
		refusal(10071, "in words of a later version, 3"): {Refused: true},
		refusal(10164, "wrong last sequence"):            {Refused: true},
	} {
		got := NewReader("K8S", "").Read(&natsgo.Msg{Data: []byte(data)})
		if (got.Err != nil) != got.Refused {
			t.Errorf("%s: %v", data, got.Err)
		}
		got.Err = nil
		if got != want {
			t.Errorf("%s: %+v, want %+v", data, got, want)
		}
	}
}
