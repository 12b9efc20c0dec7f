package statelog

// Copy is a local copy of what the log contains. A process that has lost its copy reads the whole log.
type Copy interface {
	// Point returns the point of the last Apply, or the zero Point. A copy that was not made from a log, or was changed
	// without it, has the zero Point too. If the log is empty, the content of such a copy is written to the log.
	Point() Point
	// Apply changes the content and the point in one transaction. Pairs are in the order of their commits, and may
	// share memory. Without pairs, only the point changes.
	Apply(pairs []Pair, at Point) error
	// Reset removes the content and the point. ErrDiverged means that the content is not from a log, and was not removed.
	Reset() error
}

// Source is a copy whose content can be written to the log again.
type Source interface {
	Copy
	// Next returns the pairs after a cursor, maxBytes or a little more, and the next cursor. The first cursor is empty.
	// Every pair that does not change during the pass must be returned once. Pairs that change can be left out.
	Next(cursor string, maxBytes int) (pairs []Pair, next string, done bool, err error)
}

// Point identifies a commit in the log, and contains what a reader knows about the log at this commit. A copy stores
// its Point together with its content.
type Point struct {
	Position int64  `json:"position"` // position of the first record of the commit, or an earlier one
	Number   uint64 `json:"number"`   // number of the commit; the first commit has the number 1
	Chain    uint32 `json:"chain"`    // copies with the same Number and Chain have the same content
	Claim    Claim  `json:"claim"`    // claim of the process that wrote the commit
	// Own means that the process that has this copy made the claim. Without the log, only such a copy can be used.
	Own bool `json:"own,omitempty"`
	// Partial means that the content is not complete, because it was read from the beginning of a pass that has not
	// ended. Nothing may be concluded from partial content.
	Partial bool `json:"partial,omitempty"`
	// Unsent is set if the content has changes that the log does not have. It is a random name for these changes. A reader
	// then skips the commits of the same term, and of later terms whose claims have the same Unsent: the content is newer.
	Unsent  string `json:"unsent,omitempty"`
	Pass    Pass   `json:"pass"`    // the last complete pass; Number is 0 if there is none
	Running Pass   `json:"running"` // the pass that has not ended; Number is 0 if there is none
}

// Pass describes a pass: a part of the log that contains the whole content, so nothing before it is required.
type Pass struct {
	Position int64  `json:"position"` // position of its first record, or an earlier one
	Number   uint64 `json:"number"`   // number of its first commit
	Bytes    int64  `json:"bytes"`    // size of the commits of the pass
	Total    int64  `json:"total"`    // size of all commits since its beginning
}

// precedes reports whether c is the commit after p.
func (p *Point) precedes(c *commit) bool {
	return p.Number > 0 && c.previous == p.Chain && (c.number == p.Number+1 || c.first && c.number > p.Number) &&
		(c.epoch == p.Claim.Epoch || c.kind == kindClaim && c.epoch > p.Claim.Epoch)
}

// isObsolete reports whether a commit that follows p shows that the changes of p.Unsent do not count any more: it is of
// a process that does not have them, or the log has them already, so that the copy is an old one, as from a backup. A
// claim that the process has made before these changes (Writer.Rename), and has not noted, does not name them.
func (p *Point) isObsolete(c *commit, claim Claim) bool {
	isForeign := claim.Unsent != p.Unsent && !claim.isOfSameProcess(p.Claim)
	return p.Unsent != "" && c.epoch > p.Claim.Epoch && (isForeign || claim.Sent == p.Unsent)
}

// is reports whether c is the commit of p.
func (p *Point) is(c *commit) bool {
	return p.Number > 0 && c.number == p.Number && c.chain() == p.Chain
}

// next returns the point of a commit that follows p. claim must be set if the commit is a claim.
func (p Point) next(c *commit, claim Claim, position int64) Point {
	p.Position, p.Number, p.Chain = position, c.number, c.chain()
	if c.kind == kindClaim {
		p.Claim, p.Own = claim, false
	}
	if c.first {
		p.Running = Pass{Position: position, Number: c.number}
	}
	p.Pass.Total += c.size()
	if p.Running.Number == 0 {
		return p
	}
	p.Running.Total += c.size()
	if c.first || c.kind == kindRefresh {
		p.Running.Bytes += c.size()
	}
	if c.last {
		p.Pass, p.Running, p.Partial = p.Running, Pass{}, false
	}
	return p
}

// due reports whether the log has grown enough for another pass: since the beginning of the last pass, by more than
// twice the size of this pass plus more. It returns true if there is no complete pass.
func (p *Point) due(more int64) bool { return p.Pass.Number == 0 || p.Pass.Total > 2*p.Pass.Bytes+more }
