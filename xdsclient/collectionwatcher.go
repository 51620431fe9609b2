package xdsclient

import (
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// CollectionWatcher receives the state of a glob collection (xRFC TP1, "Glob"): all resources
// of one type that share a directory and their context parameters. The calls to
// one watcher are serial. done is as for Watcher.
type CollectionWatcher interface {
	// MemberChanged reports the state of a member: value as the ResourceType
	// decoded it or, if err is not nil, that there is none to use and why. It
	// replaces what was reported of the member before. A member that left the
	// collection has an *Error of KindDoesNotExist; it may come back.
	MemberChanged(m Member, value any, err error, done func())
	// CollectionChanged reports the state of the collection as a whole. A nil err says that the
	// server has answered: the members it had then were reported before, and there may be
	// none. Errors for members are an answer too (xRFC TP3, "Wildcard Subscriptions and Glob
	// Collections"). Otherwise err is an *Error and says why nothing is known of the
	// collection; earlier reports of members are void.
	CollectionChanged(err error, done func())
	// AmbientError reports an error that leaves what was reported in use: of the
	// member or, for the zero Member, of the collection as a whole. err is an *Error.
	AmbientError(m Member, err error, done func())
}

// Member is a member of a collection: a resource or, of one that has variants (xRFC
// TP2), a variant of it. "All matching variants of the resource will be used", so
// variants of one name are separate members.
type Member struct {
	Name string
	// Parameters identify the variant. Compare them with Equal.
	Parameters dynparam.Parameters
}

// wholeWatcher calls a CollectionWatcher for the collection as a whole.
type wholeWatcher struct{ to CollectionWatcher }

func (w wholeWatcher) ResourceChanged(_ any, err error, done func()) {
	w.to.CollectionChanged(err, done)
}
func (w wholeWatcher) AmbientError(err error, done func()) { w.to.AmbientError(Member{}, err, done) }

// memberWatcher calls a CollectionWatcher for one member.
type memberWatcher struct {
	to     CollectionWatcher
	member Member
}

func (w memberWatcher) ResourceChanged(value any, err error, done func()) {
	w.to.MemberChanged(w.member, value, err, done)
}
func (w memberWatcher) AmbientError(err error, done func()) { w.to.AmbientError(w.member, err, done) }
