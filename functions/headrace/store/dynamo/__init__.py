"""The store on DynamoDB: the only package that knows boto3's client.  AWS errors stop here."""

from headrace.store.dynamo.tasks import DynamoStore, Sender

__all__ = ["DynamoStore", "Sender"]
