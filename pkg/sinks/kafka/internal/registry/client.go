package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// Client sends requests to a schema registry. It is safe for concurrent use.
type Client struct {
	Config
	// Timeout is the time limit for a request.
	Timeout time.Duration
}

// Subject returns the subject of the schema of the values in a topic.
func Subject(topic string) string { return topic + "-value" }

// Ping returns nil if the registry answers, accepts the credentials, and supports the format.
func (c *Client) Ping(ctx context.Context) error {
	return c.request(ctx, "", func(ctx context.Context, r *sr.Client) error {
		types, err := r.SupportedTypes(ctx)
		if schema := c.Format.schema(); err == nil && !slices.Contains(types, schema.Type) {
			err = errors.New("it does not support " + schema.kind)
		}
		return err
	})
}

// Lookup returns the id of the schema of a topic. It returns the zero value if the registry does not have the schema
// for this topic.
func (c *Client) Lookup(ctx context.Context, topic string) (id ID, err error) {
	err = c.request(ctx, topic, func(ctx context.Context, r *sr.Client) error {
		found, err := r.LookupSchema(ctx, Subject(topic), c.Format.schema().Schema)
		if isUnknown(err) {
			return nil
		}
		id.Number = found.ID
		if c.Format == FormatJSON { // The Confluent wire format, which Avro has, has no GUIDs.
			id.GUID = found.GUID
		}
		return err
	})
	return id, err
}

// Register returns the id of the schema of a topic, and registers the schema if the registry does not have it for this
// topic. Only registering requires the permission to write.
func (c *Client) Register(ctx context.Context, topic string) (id ID, err error) {
	if id, err = c.Lookup(ctx, topic); err != nil || id.Number != 0 {
		return id, err
	}
	err = c.request(ctx, topic, func(ctx context.Context, r *sr.Client) error {
		id.Number, err = r.RegisterSchema(ctx, Subject(topic), c.Format.schema().Schema, -1, -1)
		return err
	})
	if err != nil || c.Format == FormatAvro {
		return id, err
	}
	found, err := c.Lookup(ctx, topic) // registries return the GUID only here
	if err == nil && found.Number == 0 {
		return id, nil
	}
	return found, err
}

// Compatible returns an error if the registry would not accept the schema for a topic, because of other schemas that
// the topic has.
func (c *Client) Compatible(ctx context.Context, topic string) error {
	return c.request(ctx, topic, func(ctx context.Context, r *sr.Client) error {
		const latest = -1
		result, err := r.CheckCompatibility(ctx, Subject(topic), latest, c.Format.schema().Schema)
		switch {
		case isUnknown(err): // There is no other schema.
			return nil
		case err == nil && !result.Is:
			return &sr.ResponseError{StatusCode: http.StatusConflict}
		}
		return err
	})
}

// isUnknown reports whether the registry answered that it does not have a subject, version or schema. Another server
// answers with 404 only.
func isUnknown(err error) bool {
	answer, ok := errors.AsType[*sr.ResponseError](err)
	return ok && answer.StatusCode == http.StatusNotFound && sr.IsNotFoundError(answer.ErrorCode)
}

// request calls do with a new client. It explains the error of do. topic is empty if the request is not about a topic.
func (c *Client) request(ctx context.Context, topic string, do func(context.Context, *sr.Client) error) error {
	session, err := c.TLS.NewSession(tlsSection)
	if err != nil {
		return err
	}
	client, err := session.HTTPClient()
	if err != nil {
		return err
	}
	options := []sr.ClientOpt{sr.URLs(c.URL), sr.HTTPClient(client), sr.UserAgent("deltabridge")}
	password, err := c.password()
	if err != nil {
		return err
	}
	if c.Username != "" {
		options = append(options, sr.BasicAuth(c.Username, password))
	}
	r, err := sr.NewClient(options...)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := do(asking, r); err != nil {
		return c.explain(ctx, session, topic, password, err)
	}
	return nil
}

// explain returns the error of a failed request. It contains nothing of the response except the registry's message.
func (c *Client) explain(ctx context.Context, session *access.Session, topic, password string, err error) error {
	u, _ := url.Parse(c.URL) // the configuration is valid
	answer, answered := errors.AsType[*sr.ResponseError](err)
	if !answered {
		err = session.HTTPError(ctx, u.Host, keyURL, c.Timeout, err)
		if _, ok := errors.AsType[*sinks.ConnectError](err); ok || ctx.Err() != nil {
			return err
		}
		return &sinks.ConnectError{
			Step: sinks.StepProtocol, Address: u.Host, Key: keyURL, Rejected: true,
			Remedy: "check that " + keyURL + " is the URL of a schema registry", Err: fmt.Errorf("schema registry: %w", err),
		}
	}
	text := fmt.Sprintf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	if answer.ErrorCode != 0 && answer.Message != "" {
		text += fmt.Sprintf(": %.300s", access.Redact(answer.Message, password))
	}
	e := &sinks.ConnectError{
		Step: sinks.StepSchema, Address: u.Host, Rejected: true,
		Err: access.Words(err, "the schema registry answers %s", text),
	}
	who, key := fmt.Sprintf("user %q", c.Username), keyPassword
	if c.Username == "" {
		who, key = "the client (which does not authenticate)", keyUsername
	}
	switch status := answer.StatusCode; {
	case status == http.StatusUnauthorized:
		e.Step, e.Key, e.Remedy = sinks.StepAuthenticate, key, "check user name and password"
	case status == http.StatusForbidden:
		e.Step = sinks.StepAuthorize
		e.Remedy = fmt.Sprintf("give %s the permissions to read and write the subject %s, or register the schema that "+
			"`bridge schema --event %s` prints", who, Subject(topic), c.Format.schema().name)
	case status == http.StatusConflict && c.Format == FormatAvro:
		e.Remedy = fmt.Sprintf("the subject %s has another schema: use another topic, or delete the subject", Subject(topic))
	case status == http.StatusConflict:
		e.Remedy = c.level(topic)
	case status == http.StatusInternalServerError && c.Format == FormatJSON && topic != "":
		e.Rejected, e.Remedy = false, c.level(topic) // Apicurio Registry 3.0 answers so instead of 409.
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests:
		e.Rejected = false
	case status == http.StatusNotFound, status < http.StatusBadRequest:
		e.Step, e.Key = sinks.StepProtocol, keyURL
		e.Remedy = "check that " + keyURL + " is the URL of a schema registry; with Apicurio Registry, it ends in " +
			"/apis/ccompat/v7"
	}
	return e
}

// level returns what to do if the registry does not accept a JSON Schema. To a registry, even a schema that only gets
// an optional attribute is not compatible, because any other attribute was allowed before.
func (c *Client) level(topic string) string {
	const remedy = "if the subject %s has the schema of another version of the bridge, set the compatibility level of the " +
		"subject to NONE; if it has another schema, use another topic"
	return fmt.Sprintf(remedy, Subject(topic))
}
