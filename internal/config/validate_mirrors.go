package config

import (
	"slices"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// natsMirror checks what a stream needs that keeps the last message of each subject. template is nil if it is wrong.
func (v *validator) natsMirror(path string, n *NATS, template *event.Template) {
	s := &n.Stream
	if n.Bucket != "" {
		v.bucket(path, n)
	} else if !s.LastPerSubject {
		if v.has(path+".stream.deletionsKeptFor") && !v.broken[path+".stream.deletionsKeptFor"] {
			v.report(path+".stream.deletionsKeptFor", "has no meaning without lastPerSubject", "remove it, or write lastPerSubject: true, or name a bucket")
		}
		return
	}
	if kept := time.Duration(s.DeletionsKeptFor); kept > 0 && kept < time.Second {
		v.report(path+".stream.deletionsKeptFor", "is less than a second, the least that a server counts", "write 24h, or 0s to keep them for ever")
	}
	if template != nil {
		v.namesOneObject(path+".subject", template, "with lastPerSubject, or in a bucket, one of them would be kept", defaulted[NATS]().Subject)
	}
	if s.MaxAge > 0 {
		v.report(path+".stream.maxAge", "is given for a mirror: objects that did not change for so long would be missing", "remove it")
	}
	if n.Bucket == "" && (s.MaxBytes > 0 || s.MaxMsgs > 0) && s.Discard != "new" { // a full bucket takes no more
		v.report(path+".stream.discard", "is not new, and a limit is given besides lastPerSubject: a full stream would forget objects", "write discard: new, with which the bridge waits")
	}
}

// bucket checks what a bucket makes of the other keys.
func (v *validator) bucket(path string, n *NATS) {
	for _, key := range []string{"name", "subjects", "lastPerSubject", "discard"} {
		if at := path + ".stream." + key; v.has(at) && !v.broken[at] {
			v.report(at, "is given besides bucket, which says it", "remove it")
		}
	}
	if strings.Contains(n.Subject, "$") {
		v.report(path+".subject", "has $ in it, which a key can't hold", "remove it: the subject is the key alone")
	}
}

// namesOneObject reports a subject that several objects have, or one object several of.
func (v *validator) namesOneObject(path string, t *event.Template, otherwise, remedy string) {
	for _, changing := range []string{"operation", "version"} {
		if t.Uses(changing) {
			v.report(path, "has {"+changing+"} in it, which is not the same for all events of an object: its last state would not be the last of one subject",
				"use what stays the same for an object, as in "+remedy)
			return
		}
	}
	if !usesAll(t.Uses, "uid") && !usesAll(t.Uses, "group", "resource", "namespace", "name") {
		v.report(path, "is the same for several objects: "+otherwise, "name them by {group}, {resource}, {namespace} and {name}, or by {uid}, as in "+remedy)
	}
}

// usesAll reports whether all of the variables are used. Two groups can serve resources of one name (services), whose objects often
// have the same names: only with the group one object is named.
func usesAll(uses func(string) bool, variables ...string) bool {
	return !slices.ContainsFunc(variables, func(variable string) bool { return !uses(variable) })
}

// kafkaKey checks the key of records, which decides on their order, and on what a compacted topic keeps. topic is nil if it is
// wrong.
func (v *validator) kafkaKey(path string, k *Kafka, topic *event.Template) {
	key := v.template(path+".key", k.Key, event.EscapeNone)
	if key == nil {
		return
	}
	switch {
	case key.Uses("operation"):
		v.report(path+".key", "has {operation} in it: the events of an object would come out of order", "use what stays the same for an object, as in "+defaulted[Kafka]().Key)
	case k.Tombstones && topic != nil && !keepsApart(topic, key):
		v.report(path+".key", "is the same for several objects of one topic: with tombstones, one of them would be kept, and the deletion of one would take the others along",
			"name them by {group}, {resource}, {namespace} and {name}, or by {uid}: use "+defaulted[Kafka]().Key)
	}
	if policy, given := k.policy(); k.Tombstones && given && !strings.Contains(policy, "compact") {
		v.report(path+".createTopics.config", "has cleanup.policy "+policy+", with which tombstones have no effect", "write compact, or remove it to get that")
	}
}

// keepsApart reports whether no two objects have the same key in the same topic. A name has to be in the key: what the name of a
// topic can't hold becomes the same "-".
func keepsApart(topic, key *event.Template) bool {
	either := func(variable string) bool { return topic.Uses(variable) || key.Uses(variable) }
	return either("uid") || key.Uses("name") && usesAll(either, "group", "resource", "namespace")
}

// policy is the cleanup.policy of topics that are created.
func (k *Kafka) policy() (policy string, given bool) {
	if k.CreateTopics == nil {
		return "", false
	}
	policy, given = k.CreateTopics.Config["cleanup.policy"]
	return policy, given
}
