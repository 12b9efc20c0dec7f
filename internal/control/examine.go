package control

import "fmt"

// Examine returns what is wrong with the replicas of a bridge, the most important first, and whether one of them
// delivers.
func Examine(answers []Answer) (problems []string, delivers bool) {
	var leaders, silent int
	for _, a := range answers {
		if a.Status == nil {
			silent++
			continue
		}
		r := a.Replica
		found := r.NotReady
		if r.Role != Standby {
			leaders++
			found = append(found, r.Notes...)
			if h := a.Verdict.Health; len(found) == 0 && h.Compare(Waiting) > 0 {
				found = []string{a.Verdict.Text}
			}
		}
		for _, problem := range found {
			problems = append(problems, r.Name+": "+problem)
		}
	}
	if silent > 0 {
		problems = append([]string{fmt.Sprintf("%d of %d addresses do not answer", silent, len(answers))}, problems...)
	}
	switch {
	case leaders == 0 && silent < len(answers):
		problems = append([]string{"no replica is the leader, so nothing is delivered"}, problems...)
	case leaders > 1:
		problems = append([]string{
			fmt.Sprintf("%d replicas are the leader; only the first one can write to the state log", leaders),
		}, problems...)
	}
	return problems, leaders > 0
}
