package sinks_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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

func TestFailed(t *testing.T) {
	cause := errors.New("refused")
	known := &sinks.ConnectError{Step: sinks.StepTLS, Address: "a:1", Key: "kafka.tls", Err: cause}
	for _, c := range []struct {
		err  error
		want sinks.Finding
	}{
		{cause, sinks.Finding{Step: sinks.StepTopic, Target: "t", Err: cause}},
		{fmt.Errorf("around: %w", known), sinks.Finding{Step: sinks.StepTLS, Target: "a:1", Err: known, Remedy: "see kafka.tls"}},
	} {
		if diff := cmp.Diff(c.want, sinks.Failed(sinks.StepTopic, "t", c.err), cmpopts.EquateErrors()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
