package jsonpatch

import "github.com/deltabridge/deltabridge/internal/jsonscan"

// maxAlign bounds the work of aligning two lists, in pairs of elements. Longer ones are compared place by place.
const maxAlign = 1 << 14

// align finds which elements of two lists are the same ones: pairs of indices, in ascending order on both sides. It is the
// longest common subsequence by identity.
func align(before, after [][]byte) (pairs [][2]int) {
	n, m := len(before), len(after)
	if n == 0 || m == 0 || n*m > maxAlign {
		return nil
	}
	a, b := identities(before), identities(after)
	// longest[i][j] is the length for before[i:] and after[j:].
	longest := make([]uint16, (n+1)*(m+1))
	at := func(i, j int) int { return i*(m+1) + j }
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if a[i] == b[j] {
				longest[at(i, j)] = longest[at(i+1, j+1)] + 1
			} else {
				longest[at(i, j)] = max(longest[at(i+1, j)], longest[at(i, j+1)])
			}
		}
	}
	for i, j := 0, 0; i < n && j < m; {
		switch {
		case a[i] == b[j]:
			pairs = append(pairs, [2]int{i, j})
			i, j = i+1, j+1
		case longest[at(i+1, j)] >= longest[at(i, j+1)]:
			i++
		default:
			j++
		}
	}
	return pairs
}

func identities(elements [][]byte) []string {
	names := make([]string, len(elements))
	for n, e := range elements {
		names[n] = identity(e)
	}
	return names
}

// identity is what an element of a list is recognized by: the first member, by rank, that names things in the lists of
// Kubernetes (its merge keys); without one, the element itself.
func identity(element []byte) string {
	if element[0] != '{' {
		return string(element)
	}
	ranks := ranks()
	best, name := len(ranks), ""
	c := jsonscan.NewCursor(element)
	for key, value, ok := c.Member(); ok; key, value, ok = c.Member() {
		for rank, candidate := range ranks[:best] {
			if string(key) == candidate && value[0] != '{' && value[0] != '[' {
				best, name = rank, candidate+string(value)
				break
			}
		}
	}
	if name == "" {
		return string(element)
	}
	return name
}

// ranks are the members that name an element, the most telling first, with their quotes.
func ranks() [9]string {
	return [...]string{`"uid"`, `"mountPath"`, `"devicePath"`, `"name"`, `"type"`, `"key"`, `"containerPort"`, `"port"`, `"ip"`}
}
