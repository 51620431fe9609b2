package dialect

import (
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	unreachableReason = "MANAGEMENT_SERVER_UNREACHABLE"
	unreachableDomain = "github.com/dynxds/dynxds"
)

// Unreachable returns the detail of UNAVAILABLE by which a relay of dynxds says, in place of a resource, that
// its management servers are unreachable. Other clients do not know it.
func Unreachable() *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Reason: unreachableReason, Domain: unreachableDomain}
}

// SaysUnreachable reports whether an error in place of a resource has that detail.
func SaysUnreachable(s *statuspb.Status) bool {
	return codes.Code(s.GetCode()) == codes.Unavailable && slices.ContainsFunc(s.GetDetails(), func(detail *anypb.Any) bool {
		info := new(errdetails.ErrorInfo)
		return detail.MessageIs(info) && detail.UnmarshalTo(info) == nil &&
			info.GetReason() == unreachableReason && info.GetDomain() == unreachableDomain
	})
}
