package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// StatusPath is the path of the status on the HTTP port.
const StatusPath = "/api/status"

// ReloadPath is the path of requests to read the configuration file again.
const ReloadPath = "/api/reload"

// Status is the status of a process, as `GET /api/status` returns it. It contains no data of objects. Fields are added,
// but not removed, and keep their meaning.
type Status struct {
	At            time.Time     `json:"at"`                   // the time on the clock of the process
	Replica       Replica       `json:"replica"`              // the process
	Configuration Configuration `json:"configuration"`        // the configuration in use
	Verdict       Verdict       `json:"verdict"`              // whether everything is delivered
	Sources       []Source      `json:"sources,omitempty"`    // what is watched; absent on a standby
	Sinks         []Sink        `json:"sinks,omitempty"`      // where events are sent; on a standby, only sinks with `events: audit`
	Checkpoint    *Checkpoint   `json:"checkpoint,omitempty"` // what a restart knows; absent on a standby
}

// Replica is the process that gives the status.
type Replica struct {
	Name     string    `json:"name"`               // the name of the Pod or host, and a random suffix for each process
	Version  string    `json:"version"`            // the version of the bridge
	Started  time.Time `json:"started"`            // when the process started
	Role     Role      `json:"role"`               // `leader`; `standby`; `single` if there is no state log
	Since    time.Time `json:"since"`              // since when it has this role
	Ready    bool      `json:"ready"`              // as `/readyz`
	NotReady []string  `json:"notReady,omitempty"` // why it is not ready
	Notes    []string  `json:"notes,omitempty"`    // sinks that do not deliver, although the bridge is ready
	Epoch    uint64    `json:"epoch,omitempty"`    // the number of the last term in the state log that the replica knows
	// by how many commits the replica was behind the state log; absent if it has no complete copy or cannot read the log
	BehindCommits *int      `json:"behindCommits,omitempty"`
	TakeOver      *TakeOver `json:"takeOver,omitempty"` // the last take-over of this replica
}

// Role is what a replica does.
type Role string

// The roles.
const (
	Leader  Role = "leader"  // reads and delivers
	Standby Role = "standby" // follows the state log
	Single  Role = "single"  // has no state log, so it is the only replica
)

// TakeOver describes how a replica became the leader.
type TakeOver struct {
	Began time.Time `json:"began"` // when there was no leader any more, as far as this replica noticed
	// `start` (no replica was the leader), `released` (the previous leader has stopped) or `expired` (it did not renew the
	// Lease)
	Reason string `json:"reason"`
	Steps  []Step `json:"steps"` // in the order in which they ended
}

// Step is a step of a take-over. It begins when the previous one has ended.
type Step struct {
	Name    string  `json:"name"`    // its name in docs/availability.md
	Seconds float64 `json:"seconds"` // its duration
}

// Answer is what one address has answered.
type Answer struct {
	Address string `json:"address"`
	Error   string `json:"error,omitempty"` // why there is no status
	*Status
}

// Timeout is how long a command waits for the status of a replica.
const Timeout = 3 * time.Second

const statusBytes = 16 << 20 // the largest status that is read

// ReadStatus asks all replicas for their status at the same time. Each address is host:port, and a host name stands for
// all its addresses. The answers are sorted: the leader of the newest term first, errors last. If several addresses
// belong to one replica, there is one answer.
func ReadStatus(ctx context.Context, addresses []string) []Answer {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	answers := resolve(ctx, addresses)
	var group sync.WaitGroup
	for n := range answers {
		if a := &answers[n]; a.Error == "" {
			group.Go(func() {
				var err error
				if a.Status, err = getStatus(ctx, a.Address); err != nil {
					a.Error = err.Error()
				}
			})
		}
	}
	group.Wait()
	Sort(answers)
	return slices.CompactFunc(answers, func(a, b Answer) bool {
		return a.Status != nil && b.Status != nil && a.Replica.Name == b.Replica.Name
	})
}

// resolve returns an empty answer for each IP address, and an error for each name without an address.
func resolve(ctx context.Context, addresses []string) (all []Answer) {
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		var found []string
		if err == nil {
			found, err = net.DefaultResolver.LookupHost(ctx, host)
		}
		if err != nil {
			all = append(all, Answer{Address: address, Error: err.Error()})
		}
		for _, ip := range found {
			all = append(all, Answer{Address: net.JoinHostPort(ip, port)})
		}
	}
	return all
}

// Sort sorts answers: the leader of the newest term first, errors last.
func Sort(answers []Answer) { slices.SortStableFunc(answers, compare) }

// compare is the order of answers.
func compare(a, b Answer) int {
	rank := func(a Answer) int {
		switch {
		case a.Status == nil:
			return 2
		case a.Replica.Role == Standby:
			return 1
		}
		return 0
	}
	if r := cmp.Compare(rank(a), rank(b)); r != 0 || a.Status == nil {
		return cmp.Or(r, cmp.Compare(a.Address, b.Address))
	}
	return cmp.Or(cmp.Compare(b.Replica.Epoch, a.Replica.Epoch), cmp.Compare(a.Replica.Name, b.Replica.Name))
}

func getStatus(ctx context.Context, address string) (*Status, error) {
	client := peerClient()
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+StatusPath, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("no bridge of this version: GET %s returns %s", StatusPath, response.Status)
	}
	return ParseStatus(response.Body)
}

// ParseStatus reads the response to a request for the status.
func ParseStatus(r io.Reader) (*Status, error) {
	status := &Status{}
	if err := json.NewDecoder(io.LimitReader(r, statusBytes)).Decode(status); err != nil {
		return nil, fmt.Errorf("GET %s: %w", StatusPath, err)
	}
	return status, nil
}

// findLeader returns the address of the leader. It returns an error if no replica at these addresses is the leader.
func findLeader(ctx context.Context, peers []string) (string, error) {
	answers := ReadStatus(ctx, peers)
	if len(answers) > 0 && answers[0].Status != nil && answers[0].Replica.Role == Leader {
		return answers[0].Address, nil
	}
	var problems []error
	for _, a := range answers {
		if a.Status == nil {
			problems = append(problems, fmt.Errorf("%s: %s", a.Address, a.Error))
		} else {
			problems = append(problems, fmt.Errorf("%s: %s", a.Address, a.Replica.Role))
		}
	}
	return "", errors.Join(problems...)
}
