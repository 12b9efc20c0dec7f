#!/usr/bin/env bash
# A topic with Kafka's own command line tool (in the directory bin of its distribution; since 4.2, before that
# --formatter-property is --property).
#
#   ./kafka.sh                consume: what is new since the last call, as a consumer group; more arguments go to the tool
#   ./kafka.sh lag            how far the group is
set -euo pipefail
brokers=${BROKERS:-127.0.0.1:9092}
topic=${TOPIC:-k8s}
group=${GROUP:-example-cli}

case ${1:-consume} in
lag)
	kafka-consumer-groups.sh --bootstrap-server "$brokers" --describe --group "$group"
	;;
*)
	[[ ${1:-} != consume ]] || shift
	# A line for each record: headers, key, value. The tool commits what it has printed every few seconds, and when it ends
	# (Ctrl-C): after a kill -9 some records come again. A value of null is a tombstone: skipped.
	kafka-console-consumer.sh --bootstrap-server "$brokers" --topic "$topic" --group "$group" --from-beginning \
		--formatter-property print.headers=true --formatter-property print.key=true \
		--formatter-property null.literal=null "$@" |
		awk -F '\t' '$NF != "null"'
	;;
esac
