package controlplane

// besides are, by topic, how far a client knows of resources with errors beside them (Tx.AnswerBeside). A client gets such a resource
// first, as far as it does not have it, and the error with a later response: in one response, the resource would count. stream.mu guards
// them.
type besides map[topic]*besideState

type besideState struct {
	// has is the resource that the client has, and told the error that it was sent beside it, nil if none.
	has  *Resource
	told *resourceError
}

// sending notes that a resource is sent. An error beside it is due then.
func (sub *subscription) sending(tp topic, e *entry) {
	delete(sub.besides, tp)
	if e.beside != nil {
		sub.knows(tp, e.resource)
		sub.postpone(tp, false)
	}
}

// knows notes that the client has a resource that has an error beside it.
func (sub *subscription) knows(tp topic, r *Resource) {
	if is := sub.besides[tp]; is != nil && is.has.sameVersion(r) {
		return
	}
	if sub.besides == nil {
		sub.besides = besides{}
	}
	sub.besides[tp] = &besideState{has: r}
}

// recovers reports whether the client was sent an error beside a resource that is over, so that it is to be sent the resource again.
func (sub *subscription) recovers(tp topic, e *entry) bool {
	is := sub.besides[tp]
	return is != nil && is.told != nil && e.beside == nil
}

// beside adds the error beside a resource to those that are sent, unless the client lacks the resource or was sent the error.
func (sub *subscription) beside(tp topic, e *entry, errs []namedError) []namedError {
	is := sub.besides[tp]
	if e.beside == nil || is == nil || is.told.same(e.beside) {
		return errs
	}
	is.told = e.beside
	return append(errs, namedError{tp, sub.resourceName(tp, e), e.beside})
}

// hasBeside reports whether the client has the resource of an entry with an error beside it.
func (sub *subscription) hasBeside(tp topic, e *entry) bool {
	is := sub.besides[tp]
	return is != nil && e.beside != nil && is.has.sameVersion(e.resource)
}
