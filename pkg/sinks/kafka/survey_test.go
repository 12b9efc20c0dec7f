package kafka

import (
	"testing"

	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// Survey counts the brokers, and the topics that match the template, which need not exist.
func TestSurvey(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "survey.pods", 1, nil)
	for topic, want := range map[string]string{
		"survey.{resource}": "1 existing topics match survey.{resource}", "survey.pods": "1 existing topics match survey.pods",
		"survey.none": "", "survey.none.{kind}": "",
	} {
		cfg := Config{Brokers: []string{broker.Addr()}, Topic: topic}
		found, err := newSink(t, cfg).Survey(t.Context())
		if err != nil || found.Servers != 1 || found.Exists != (want != "") || found.Detail != want {
			t.Errorf("%s: %+v, %v", topic, found, err)
		}
	}
}
