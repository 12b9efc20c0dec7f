package sinks_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

func TestConnectErrorsAreOneLine(t *testing.T) {
	cause := errors.New("refused")
	for _, c := range []struct {
		err          sinks.ConnectError
		text, advice string
	}{
		{sinks.ConnectError{Step: sinks.StepFiles, Err: cause}, "files: refused", ""},
		{sinks.ConnectError{Step: sinks.StepConnect, Address: "a:1", Err: cause}, "a:1: connect: refused", ""},
		{sinks.ConnectError{Step: sinks.StepTLS, Address: "a:1", Key: "kafka.tls.caFile", Err: cause}, "a:1: TLS: refused (see kafka.tls.caFile)", "see kafka.tls.caFile"},
		{
			sinks.ConnectError{Step: sinks.StepTLS, Key: "kafka.tls", Remedy: "start it", Err: cause},
			"TLS: refused; start it (see kafka.tls)", "start it (see kafka.tls)",
		},
		{sinks.ConnectError{Step: sinks.StepTLS, Key: "kafka.tls", Remedy: "set kafka.tls", Err: cause}, "TLS: refused; set kafka.tls", "set kafka.tls"},
	} {
		if diff := cmp.Diff([]string{c.text, c.advice}, []string{c.err.Error(), c.err.Advice()}); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if !errors.Is(&c.err, cause) {
			t.Errorf("%v does not wrap its cause", &c.err)
		}
	}
}
