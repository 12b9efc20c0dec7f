package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// This file speaks to etcd through its HTTP/JSON gateway, which maps the gRPC
// API to JSON: bytes are base64, 64-bit integers are strings, a stream is a
// sequence of JSON values. See https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/.

// ErrCompacted says that the asked part of the history is gone.
var ErrCompacted = errors.New("etcd: history is compacted")

// Revision is one committed change of one key.
type Revision struct {
	// Key is the whole key, such as /registry/configmaps/default/one.
	Key string
	// ModRevision is the revision of the change: the resourceVersion that the
	// object has after it, or that a watch gives to its deletion.
	ModRevision int64
	// CreateRevision is the ModRevision of the key's creation. In a deletion it
	// is that of what was deleted, or 0 if the history read does not reach that far
	// back.
	CreateRevision int64
	// Deleted is true when the change is the deletion of the key.
	Deleted bool
	// Value is what etcd has under the key, as the API server encodes it; nil in a deletion.
	Value []byte
}

// History returns every committed change of the keys with the prefix, in the
// order of their revisions, from the revision from (1: the beginning) to the one at
// which etcd stands when the call is made. It fails with ErrCompacted when etcd no
// longer has the first. It reads all changes of the cluster since from.
func (c *Cluster) History(ctx context.Context, prefix string, from int64) ([]Revision, error) {
	current, err := c.Revision(ctx)
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", prefix, err)
	}
	var history []Revision
	if current <= 1 || current < from { // 1 is the empty store: there is no change to wait for
		return history, nil
	}
	complete := errors.New("complete")
	// Of all keys, because only then the reader of a part knows where it stands: each revision has a change, but not each
	// has one under a prefix.
	err = c.watch(ctx, "", from, func(batch []Revision) error {
		for _, r := range batch {
			if r.ModRevision <= current && strings.HasPrefix(r.Key, prefix) {
				history = append(history, r)
			}
		}
		if batch[len(batch)-1].ModRevision >= current {
			return complete
		}
		return nil
	})
	if !errors.Is(err, complete) {
		return nil, fmt.Errorf("history of %s: %w", prefix, err)
	}
	return history, nil
}

// WatchHistory calls fn for every committed change of the keys with the prefix,
// in the order of their revisions, from the revision from (1: the beginning) on
// and then for each new one, until ctx ends or fn returns an error. It returns
// that error. A reader that began early knows what a later compaction removes.
func (c *Cluster) WatchHistory(ctx context.Context, prefix string, from int64, fn func(Revision) error) error {
	err := c.watch(ctx, prefix, from, func(batch []Revision) error {
		for _, r := range batch {
			if err := fn(r); err != nil {
				return err
			}
		}
		return nil
	})
	return fmt.Errorf("watch history of %s: %w", prefix, err)
}

// Revision returns the current revision of etcd.
func (c *Cluster) Revision(ctx context.Context) (int64, error) {
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	// The cheapest read of a header: count the keys, which etcd does in its index.
	err := c.call(ctx, "/v3/kv/range", map[string]any{"key": allKeys, "range_end": allKeys, "count_only": true}, &answer)
	if err != nil {
		return 0, fmt.Errorf("revision of etcd: %w", err)
	}
	return answer.Header.Revision, nil
}

// Compact makes etcd forget its history before the current revision. A watch or
// an exact list that needs it then fails, where the API server asks etcd: it
// answers from its own cache where it can.
func (c *Cluster) Compact(ctx context.Context) error {
	current, err := c.Revision(ctx)
	if err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	return c.CompactTo(ctx, current)
}

// CompactTo is Compact up to a revision, of which everything is kept.
func (c *Cluster) CompactTo(ctx context.Context, revision int64) error {
	// physical: the answer comes when the revisions are gone.
	err := c.call(ctx, "/v3/kv/compaction", map[string]any{"revision": revision, "physical": true}, &struct{}{})
	if err != nil {
		return fmt.Errorf("compact at revision %d: %w", revision, err)
	}
	return nil
}

// allKeys is the byte 0 in base64: as key and as end of a range, every key.
const allKeys = "AA=="

// watchMessage is one message of a watch stream.
type watchMessage struct {
	Result struct {
		Canceled        bool         `json:"canceled"`
		CancelReason    string       `json:"cancel_reason"`
		CompactRevision int64        `json:"compact_revision,string"`
		Events          []watchEvent `json:"events"`
	} `json:"result"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

type watchEvent struct {
	Type string `json:"type"` // left out for PUT
	KV   struct {
		Key            []byte `json:"key"`
		CreateRevision int64  `json:"create_revision,string"`
		ModRevision    int64  `json:"mod_revision,string"`
		Value          []byte `json:"value"`
	} `json:"kv"`
}

// watch reads the changes of the keys with the prefix from a revision on and gives
// them to fn as they come, never none. It ends with the error of fn, of ctx or of
// the stream.
func (c *Cluster) watch(ctx context.Context, prefix string, from int64, fn func([]Revision) error) error {
	request := map[string]any{"key": allKeys, "range_end": allKeys, "start_revision": from}
	if n := len(prefix); n > 0 {
		end := []byte(prefix)
		end[n-1]++ // the first key behind those with the prefix
		request["key"], request["range_end"] = []byte(prefix), end
	}
	body, err := c.post(ctx, "/v3/watch", map[string]any{"create_request": request})
	if err != nil {
		return err
	}
	defer body.Close()

	created := map[string]int64{} // CreateRevision of the living keys; etcd does not repeat it in a deletion
	for messages := json.NewDecoder(body); ; {
		var m watchMessage
		if err := messages.Decode(&m); err != nil {
			return fmt.Errorf("read watch of etcd: %w", err)
		}
		switch {
		case m.Error != nil:
			return fmt.Errorf("watch of etcd: %s", m.Error.Message)
		case m.Result.CompactRevision > 0:
			return fmt.Errorf("%w: asked from revision %d, it begins at %d", ErrCompacted, from, m.Result.CompactRevision)
		case m.Result.Canceled:
			return fmt.Errorf("watch of etcd: cancelled: %s", m.Result.CancelReason)
		case len(m.Result.Events) == 0: // the confirmation that the watch stands
			continue
		}
		if err := fn(revisions(m.Result.Events, created)); err != nil {
			return err
		}
	}
}

// revisions converts events and keeps created up to date.
func revisions(events []watchEvent, created map[string]int64) []Revision {
	batch := make([]Revision, 0, len(events))
	for _, e := range events {
		r := Revision{
			Key:            string(e.KV.Key),
			ModRevision:    e.KV.ModRevision,
			CreateRevision: e.KV.CreateRevision,
			Deleted:        e.Type == "DELETE",
			Value:          e.KV.Value,
		}
		if r.Deleted {
			r.CreateRevision = created[r.Key]
			delete(created, r.Key)
		} else {
			created[r.Key] = r.CreateRevision
		}
		batch = append(batch, r)
	}
	return batch
}

// etcdHealth reports whether etcd serves and can commit.
func (c *Cluster) etcdHealth(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.EtcdURL()+"/health", nil)
	if err != nil {
		return err
	}
	resp, err := c.gateway.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: GET /health: %s", resp.Status)
	}
	return nil
}

// call sends one request and decodes its one answer.
func (c *Cluster) call(ctx context.Context, path string, request, answer any) error {
	body, err := c.post(ctx, path, request)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(answer); err != nil {
		return fmt.Errorf("etcd: read answer of %s: %w", path, err)
	}
	_, _ = io.Copy(io.Discard, body) // a body read to its end leaves the connection for the next call
	return nil
}

// post sends a request and returns the body of the answer, which the caller
// closes.
func (c *Cluster) post(ctx context.Context, path string, request any) (io.ReadCloser, error) {
	data, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("etcd: encode request for %s: %w", path, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.EtcdURL()+path, bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	resp, err := c.gateway.Do(req)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		const enough = 4 << 10
		message, _ := io.ReadAll(io.LimitReader(resp.Body, enough)) // a part of the reason is better than none
		return nil, fmt.Errorf("etcd: POST %s: %s: %s", path, resp.Status, bytes.TrimSpace(message))
	}
	return resp.Body, nil
}
