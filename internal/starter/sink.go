package starter

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// The kinds of brokers that a configuration can be written for: keys of a sink.
const (
	KindNATS  = "nats"
	KindKafka = "kafka"
)

// maxReplicas is the number of replicas of new streams and topics, if there are enough servers.
const maxReplicas = 3

// Broker describes the broker of the sink.
type Broker struct {
	Kind string // KindNATS or KindKafka
	// Keys is the address (a URL, or brokers with commas between them) or, if it begins with {, the keys of the section of
	// that kind as YAML.
	Keys string
}

// section returns the section of the sink as YAML.
func (b *Broker) section() (*yaml.Node, error) {
	text := b.Keys
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		section := map[string]any{"url": b.Keys}
		if b.Kind == KindKafka {
			section = map[string]any{"brokers": strings.Split(b.Keys, ",")}
		}
		data, err := json.Marshal(section) // JSON is YAML
		if err != nil {
			return nil, err
		}
		text = string(data)
	}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return nil, err
	}
	return document.Content[0], nil
}

// survey connects to the broker, and completes its section with what it finds. The note describes what exists. file is
// the name of the future configuration file.
func (b *Broker) survey(ctx context.Context, file string) (section, note string, err error) {
	node, err := b.section()
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", b.Kind, err)
	}
	text, err := yaml.Marshal(map[string]any{"sinks": []any{map[string]any{"name": "live", b.Kind: node}}})
	if err != nil {
		return "", "", err
	}
	cfg, err := config.Parse(file, text)
	if err != nil {
		return "", "", fmt.Errorf("%s %s: %w", b.Kind, b.Keys, err)
	}
	d, err := assemble.NewClient(&cfg.Sinks[0])
	if err != nil {
		return "", "", err
	}
	found, err := d.Sink.(diagnose.Surveyor).Survey(ctx)
	if err != nil {
		return "", "", err
	}
	servers := fmt.Sprintf("%d servers", found.Servers)
	if found.Servers == 1 {
		servers = "1 server"
	}
	note = b.complete(node, &cfg.Sinks[0], &found)
	data, err := yaml.Dump(plain(node), yaml.WithIndent(2))
	return string(data), strings.Join(strings.Fields(servers+"; "+note), " "), err
}

// complete adds the keys of a new stream or new topics, and returns a note about them.
func (b *Broker) complete(section *yaml.Node, sink *config.Sink, found *diagnose.Survey) (note string) {
	if b.Kind == KindKafka {
		setDefault(child(section, "createTopics"), "replicationFactor", strconv.Itoa(min(found.Servers, maxReplicas)))
		if found.Exists {
			return found.Detail + "; the bridge creates others"
		}
		return "the bridge creates the topics"
	}
	stream, name := child(section, "stream"), "stream "+sink.NATS.Stream.Name
	if sink.NATS.Bucket != "" {
		name = "bucket " + sink.NATS.Bucket
	} else {
		setDefault(stream, "name", sink.NATS.Stream.Name)
	}
	switch {
	case found.Exists:
		return name + " exists: " + found.Detail
	case found.Detail != "":
		note = "; " + found.Detail
	}
	setDefault(stream, "create", "true")
	if found.Servers >= maxReplicas {
		setDefault(stream, "replicas", strconv.Itoa(maxReplicas))
	}
	return name + " does not exist yet" + note
}

// child returns the object at a key, which it adds if it does not exist.
func child(section *yaml.Node, key string) *yaml.Node {
	for n := 0; n+1 < len(section.Content); n += 2 {
		if section.Content[n].Value == key {
			return section.Content[n+1]
		}
	}
	value := &yaml.Node{Kind: yaml.MappingNode}
	section.Content = append(section.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	return value
}

// setDefault sets a key of an object that does not have the key.
func setDefault(section *yaml.Node, key, value string) {
	for n := 0; n < len(section.Content); n += 2 {
		if section.Content[n].Value == key {
			return
		}
	}
	section.Content = append(section.Content,
		&yaml.Node{Kind: yaml.ScalarNode, Value: key}, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
}

// plain removes the styles of a tree, such as the quotes of JSON.
func plain(node *yaml.Node) *yaml.Node {
	node.Style = 0
	for _, c := range node.Content {
		plain(c)
	}
	return node
}
