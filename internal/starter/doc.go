// Package starter writes a first configuration, after it has found out what a cluster and a broker have.
//
// It discovers the resources that the API server serves. For each of them, it asks whether the user may list and watch
// it (SelfSubjectAccessReview), in the whole cluster or else in the namespace of the kubeconfig. It counts the objects
// of the resource. A broker answers what [diagnose.Survey] describes. Nothing is changed.
//
// The configuration watches resources that have objects. Resources without objects, and those whose changes are rarely
// of interest, are in comments. `bridge check` accepts the configuration.
package starter
