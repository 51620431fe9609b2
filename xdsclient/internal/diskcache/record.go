package diskcache

import (
	"time"

	cachepb "github.com/dynxds/dynxds/proto/dynxds/resource_cache/v1"
)

// Key identifies a record.
type Key struct {
	TypeURL, Name string
	// Constraints are those of the subscription, serialized.
	Constraints string
	// Member and Parameters are those of the member of a collection, which Name is that of. They
	// are empty for a resource, and for a collection as a whole.
	Member, Parameters string
}

// Record is what the file has of one resource. It is immutable.
type Record struct {
	Key
	// Server is server_uri of the management server that sent the resource.
	Server string
	// Time is when the resource was last known to be current, or was refused.
	Time time.Time
	// Refused says that the server does not have the resource for these constraints, or denies it. There is no
	// Resource then.
	Refused bool
	// Enveloped says that Resource is as the server sent it, envelope included.
	Enveloped bool
	// Secured says that connections need security because of the resource.
	Secured bool
	// Resource is an envoy.service.discovery.v3.Resource, serialized. It is empty for a collection
	// as a whole, which may have no members.
	Resource []byte
	// Encode, of a record that is to be written, returns Resource, which is then not set. It may use the memory that it is given. The
	// resources are needed one after the other, and not kept.
	Encode func(b []byte) []byte
}

// message is the record as a file has it, with its resource.
func (r *Record) message(resource []byte) *cachepb.Record {
	return &cachepb.Record{
		TypeUrl: r.TypeURL, Name: r.Name, Constraints: []byte(r.Constraints), Member: r.Member, Parameters: []byte(r.Parameters),
		Server: r.Server, Time: r.Time.UnixNano(), Refused: r.Refused, Enveloped: r.Enveloped, Secured: r.Secured, Resource: resource,
	}
}

func newRecord(m *cachepb.Record) Record {
	return Record{
		Key:    Key{m.GetTypeUrl(), m.GetName(), string(m.GetConstraints()), m.GetMember(), string(m.GetParameters())},
		Server: m.GetServer(), Time: time.Unix(0, m.GetTime()), Refused: m.GetRefused(), Enveloped: m.GetEnveloped(), Secured: m.GetSecured(),
		Resource: m.GetResource(),
	}
}
