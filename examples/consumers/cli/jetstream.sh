#!/usr/bin/env bash
# The stream with the command line tool of NATS (https://github.com/nats-io/natscli). NATS_URL, or `nats context`, says where
# the server is; the bridge's own broker listens on nats://127.0.0.1:4222.
#
#   ./jetstream.sh            consume: what is new since the last call, acknowledged, in batches
#   ./jetstream.sh show       everything that is in the stream, with headers
#   ./jetstream.sh state      the last event of each object
#   ./jetstream.sh gaps       where events may be missing
set -euo pipefail
stream=${STREAM:-K8S}
subjects=${SUBJECTS:-'k8s.>'}        # k8s.<cluster>.<group>.<resource>.<namespace>.<name>
durable=${DURABLE:-example-cli}

case ${1:-consume} in
show)
	nats subscribe --stream "$stream" --all --terminate-at-end "$subjects"
	;;
state)
	# Deletions are events, too: an object whose last event has the ce-type dev.deltabridge.object.deleted is gone.
	nats subscribe --stream "$stream" --last-per-subject --terminate-at-end "$subjects"
	;;
gaps)
	nats subscribe --stream "$stream" --all --terminate-at-end 'k8s.*.*.*._._gap'
	;;
consume)
	# A durable consumer is a place in the stream that the server keeps under a name. Adding it again changes nothing.
	nats consumer info "$stream" "$durable" >/dev/null 2>&1 ||
		nats consumer add "$stream" "$durable" --pull --deliver all --ack explicit --wait 30s --replay instant \
			--filter "$subjects" --defaults
	# Each message is acknowledged when it has been printed. What is not comes again after 30 s.
	nats consumer next "$stream" "$durable" --count "${COUNT:-100}"
	;;
*)
	sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
