package informer

import "k8s.io/apimachinery/pkg/util/wait"

// SetBackoff sets the back-off between lists and watches to which the API server responds with errors. It must be called
// before Run.
func (i *Informer) SetBackoff(b wait.Backoff) { i.backoff = b }
