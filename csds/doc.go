// Package csds is the Client Status Discovery Service (gRFC A40): it tells, over
// gRPC, which resources the xDS clients of this process hold, in which version,
// and what is wrong with those that they do not. grpcdebug reads it.
//
// It is not a control plane's CSDS, which speaks of other nodes, and it changes
// nothing. It holds no state: each answer is made from xdsclient.Clients and
// XDSClient.Dump at the moment of the request, and goes to whoever may connect to
// the gRPC server it is registered on. Resources can hold what is not for
// everyone, so that should be a server for administrators.
//
// # The answer
//
// There is one ClientConfig per client, so one for all channels with the same
// bootstrap. Its generic_xds_configs list the watched resources in the order of
// their type URLs and names; the deprecated xds_config stays empty.
//
//	node            what the client tells its management servers of itself
//	client_scope    the targets of the channels that use the client
//	version_info,   of the last response that carried the resource and in which
//	last_updated    it was valid, also if its bytes were those of the one before
//	xds_config      the resource in use, as the server sent it
//	client_status   REQUESTED, DOES_NOT_EXIST, ACKED, NACKED, RECEIVED_ERROR or
//	                TIMEOUT (gRFC A88)
//	error_state     the error, its time, and the version of the response with
//	                it; failed_configuration is not kept
//
// Which fields of a resource the client ignores has no place in the answer: see
// xdsclient.ResourceDump.Ignored, and the command "dynxds status".
//
// What is in use and what is wrong are two questions: unless the server has the
// feature fail_on_data_errors, a resource that is NACKED, for example, is still in
// use in its last good version (A88).
package csds
