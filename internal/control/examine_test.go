package control

import (
	"strings"
	"testing"
)

// replicaAnswer returns the answer of a replica.
func replicaAnswer(name string, role Role, edit func(*Replica)) Answer {
	r := Replica{Name: name, Role: role, Ready: true}
	if edit != nil {
		edit(&r)
	}
	return Answer{Address: name + ":1", Status: &Status{Replica: r}}
}

// The most important problem is the first.
func TestExamine(t *testing.T) {
	leader, standby := replicaAnswer("a", Leader, nil), replicaAnswer("b", Standby, nil)
	behind := replicaAnswer("b", Standby, func(r *Replica) { r.Ready, r.NotReady = false, []string{"it is behind"} })
	away := replicaAnswer("a", Leader, func(r *Replica) { r.Notes = []string{"sink x: retrying"} })
	noted := replicaAnswer("b", Standby, func(r *Replica) { r.Notes = []string{"the leader is a"} })
	lossy, waits := replicaAnswer("a", Leader, nil), replicaAnswer("a", Leader, nil)
	lossy.Verdict = Verdict{Health: Lossy, Text: "A gap."}
	waits.Verdict = Verdict{Health: Waiting, Text: "An outage."}
	silent := Answer{Address: "c:1", Error: "connection refused"}
	for name, tt := range map[string]struct {
		answers []Answer
		want    string
		leads   bool
	}{
		"lost":        {[]Answer{lossy, standby}, "a: A gap.", true},
		"waits":       {[]Answer{waits, standby}, "", true},
		"fine":        {[]Answer{leader, standby, noted}, "", true},
		"alone":       {[]Answer{replicaAnswer("a", Single, nil)}, "", true},
		"not ready":   {[]Answer{leader, behind}, "b: it is behind", true},
		"not sent":    {[]Answer{away, standby}, "a: sink x: retrying", true},
		"one silent":  {[]Answer{leader, behind, silent}, "1 of 3 addresses do not answer; b: it is behind", true},
		"all silent":  {[]Answer{silent}, "1 of 1 addresses do not answer", false},
		"no leader":   {[]Answer{standby, silent}, "no replica is the leader, so nothing is delivered; 1 of 2 addresses do not answer", false},
		"two leaders": {[]Answer{leader, leader}, "2 replicas are the leader; only the first one can write to the state log", true},
	} {
		t.Run(name, func(t *testing.T) {
			problems, delivers := Examine(tt.answers)
			if got := strings.Join(problems, "; "); got != tt.want || delivers != tt.leads {
				t.Errorf("%q, delivers: %t, want %q, %t", got, delivers, tt.want, tt.leads)
			}
		})
	}
}
